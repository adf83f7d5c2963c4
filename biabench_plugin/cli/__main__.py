from biabench_plugin.cli import main

main()
