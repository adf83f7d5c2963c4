"""Tables and figures of small campaigns: their forms, their marks, and what must never be pooled."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from biabench_plugin import checkout
from biabench_plugin.report.export import export
from biabench_plugin.report.figures import all_figures
from biabench_plugin.report.runs import Run, paper_runs
from biabench_plugin.report.study import Study, chain_depth, strata, studies
from biabench_plugin.report.table import Cell, Column, Table
from biabench_plugin.report.tables import all_tables
from biabench_plugin.taskspec import TaskSpec, load_tasks


@pytest.fixture(scope="module")
def tasks() -> dict[str, TaskSpec]:
    return load_tasks(checkout.TASKS)


@pytest.fixture(scope="module")
def paper(tasks: dict[str, TaskSpec]) -> list[Run]:
    return paper_runs(tasks)


Make = Callable[..., list[Run]]


@pytest.fixture
def campaign(tasks: dict[str, TaskSpec]) -> Make:
    """Runs of some configurations on every task with scores from a seed."""

    def make(configurations: Sequence[str] = ("codex[m-brief]",), repeats: int = 3, **more: object) -> list[Run]:
        rng = np.random.default_rng(0)
        return [
            replace(
                Run("demo", name, name.partition("[")[0], "m", "brief", slug, f"r{repeat}", "delivered"),
                outcome=float(rng.uniform()),
                strict=float(rng.uniform()),
                wall_minutes=float(rng.uniform(1, 60)),
                **more,  # type: ignore[arg-type]
            )
            for name in configurations
            for slug in tasks
            for repeat in range(1, repeats + 1)
        ]

    return make


def by_id(tables: Sequence[Table]) -> dict[str, Table]:
    return {table.id: table for table in tables}


def cells(table: Table, row: int) -> dict[str, str]:
    return {column.key: table.text(column, cell) for column, cell in zip(table.columns, table.rows[row], strict=True)}


def test_forms_of_a_table() -> None:
    table = Table(
        "t",
        "Title",
        "Caption.",
        (Column("name", "Name", align="left"), Column("value", "Value", 2), Column("n", "n")),
        [("a|b", Cell(0.125, mark="†"), 3), ("<b>&", None, Cell(None, "R"))],
        ("A note.",),
    )
    rows = list(csv.reader(io.StringIO(table.to_csv())))
    assert rows == [["name", "value", "value_mark", "n"], ["a|b", "0.125", "†", "3"], ["<b>&", "", "", ""]]
    markdown = table.to_markdown()
    assert "| a\\|b | 0.12† | 3 |" in markdown
    assert "| &lt;b>& | – | R |" in markdown
    assert "- A note." in markdown
    page = table.to_html()
    assert '<td class="number" data-sort="0.125">0.12†</td>' in page
    assert "&lt;b&gt;&amp;" in page
    assert '<th scope="row"' in page
    assert "<caption>Caption.</caption>" in page
    ElementTree.fromstring(f"<div>{page}</div>")


def test_every_table_has_three_well_formed_forms(paper: list[Run], tasks: dict[str, TaskSpec]) -> None:
    tables = all_tables(paper, tasks)
    assert {"table1", "table2", "table3", "table4", "tableA1", "tableA2", "tableF1", "tableF2"} <= set(by_id(tables))
    for table in tables:
        ElementTree.fromstring(f"<div>{table.to_html()}</div>")
        rows = list(csv.reader(io.StringIO(table.to_csv())))
        assert len({len(row) for row in rows}) == 1
        assert len(rows) == len(table.rows) + 1
        assert table.to_markdown().count("\n| ") == len(table.rows) + 1
        assert len({column.key for column in table.columns}) == len(table.columns)


def test_what_was_not_measured_is_a_dash_never_zero(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    table = by_id(all_tables(campaign(), tasks))["table1"]
    row = cells(table, 0)
    assert {row[name] for name in ("process", "input_ktok", "output_ktok", "cost_usd", "weights")} == {"–"}
    text = table.to_csv().splitlines()[1]
    assert ",0.0," not in text


def test_datasets_are_never_pooled(campaign: Make, paper: list[Run], tasks: dict[str, TaskSpec]) -> None:
    runs = [*campaign(), *paper[:96]]
    found = by_id(all_tables(runs, tasks))
    assert {"table1-demo", "table1-full"} <= set(found)
    assert [len(found[f"table1-{name}"].rows) for name in ("demo", "full")] == [1, 2]
    assert "(demo)" in found["table1-demo"].title


def test_demo_data_are_marked_everywhere(campaign: Make, paper: list[Run], tasks: dict[str, TaskSpec]) -> None:
    own = [table for table in all_tables(campaign(), tasks) if table.section != "suite"]
    assert all(table.title.endswith("(demo)") and "no benchmark results" in table.notes[0] for table in own)
    figures = [figure for figure in all_figures(campaign(), tasks) if figure.id != "figure1c"]
    assert all(figure.title.endswith("(demo)") and "no benchmark" in figure.caption for figure in figures)
    assert not any("benchmark results" in note for table in all_tables(paper, tasks) for note in table.notes)


def test_the_judge_stands_beside_its_scores(campaign: Make, paper: list[Run], tasks: dict[str, TaskSpec]) -> None:
    judged = by_id(all_tables(campaign(process=0.5, judge="m, protocol 1"), tasks))
    for name in ("table1", "table2"):
        assert any("m, protocol 1; agreement with experts not measured" in note for note in judged[name].notes)
        assert any("claude-sonnet-5" in note and "0.67" in note for note in by_id(all_tables(paper, tasks))[name].notes)


def test_hostile_names_stay_text(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    bad = r"$\frac{$ <script>alert(1)</script> \x"
    runs = [replace(run, agent=bad, model=bad, cost_usd=1.0) for run in campaign(("a[m]", "b[m]", "c[m]"))]
    for table in all_tables(runs, tasks):
        assert "<script" not in table.to_html()
        assert "<script" not in table.to_markdown()
    for figure in all_figures(runs, tasks):
        assert b"<script" not in figure.svg


def test_fewer_than_three_repeats_are_marked(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    found = by_id(all_tables(campaign(repeats=2), tasks))
    assert cells(found["table1"], 0)["outcome"].endswith("†")
    assert all(cells(found["table3"], row)["codex[m-brief]"].endswith("†") for row in range(16))


def test_refused_tasks_and_common_tasks(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    runs = campaign(("codex[m-brief]", "biomni[m-brief]"))
    runs = [
        replace(run, status="refused", outcome=None)
        if (run.agent, run.task) == ("codex", "golgi_colocalization")
        else run
        for run in runs
    ]
    found = by_id(all_tables(runs, tasks))
    (row,) = [row for row in range(16) if cells(found["table3"], row)["task"] == tasks["golgi_colocalization"].label]
    assert cells(found["table3"], row)["codex[m-brief]"] == "R"
    common = found["common_tasks"]
    assert "Golgi" in common.caption
    assert [cells(common, k)["tasks_own"] for k in range(2)].count("15") == 1
    alone = by_id(all_tables([run for run in runs if run.agent == "biomni"], tasks))
    assert "common_tasks" not in alone


def test_synthetic_agents_are_named_last_and_not_compared(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    perfect = [replace(run, outcome=1.0) for run in campaign(("replay[brief]",), synthetic=True)]
    found = by_id(all_tables([*campaign(), *perfect], tasks))
    assert [cells(found["table1"], k)["agent"] for k in range(2)] == ["codex", "replay (synthetic)"]
    assert "differences" not in found
    assert len(found["intervals"].rows) == 1


def test_claims_count_low_delivered_runs_with_a_message(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    runs = campaign(repeats=1)
    said = ("claimed", "promised", "unknown", "claimed")
    low = [replace(run, outcome=0.05, claim=word, claim_published=word) for run, word in zip(runs, said, strict=False)]
    table = by_id(all_tables([*low, *runs[4:]], tasks))["table2"]
    extra = sum((run.outcome or 0) < 0.1 for run in runs[4:])
    assert extra == 0  # of this seed
    assert cells(table, 0)["claims"] == "2/3"


def test_pass_rates_of_sections_count_items_alike(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    one, two, *rest = campaign(repeats=1)
    judged = [
        replace(one, sections={"input-understanding": (8, 9), "tracking": (1, 4)}),
        replace(two, sections={"input-understanding": (9, 9), "quantification": (3, 4)}),
    ]
    row = cells(by_id(all_tables([*judged, *rest], tasks))["table2"], 0)
    assert (row["input"], row["quantification"], row["tools"]) == ("0.94", "0.50", "–")


def test_differing_budgets_are_flagged(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    long, short = campaign(budget_minutes=240.0), campaign(("biomni[m-brief]",), budget_minutes=120.0)
    mixed = by_id(all_tables([*long, *short], tasks))["table1"]
    assert {cells(mixed, k)["budget_min"] for k in range(2)} == {"240 !", "120 !"}
    alike = by_id(all_tables(long, tasks))["table1"]
    assert cells(alike, 0)["budget_min"] == "240"
    assert not any("budgets" in note for note in alike.notes)


def test_costs_name_their_outliers(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    runs = [replace(run, cost_usd=1.0 + 0.01 * k) for k, run in enumerate(campaign(repeats=1))]
    runs[3] = replace(runs[3], cost_usd=64.0, run_id="the-dear-one")
    table = by_id(all_tables(runs, tasks))["cost"]
    row = cells(table, 0)
    assert (row["outliers"], row["highest"]) == ("1", "64.00")
    assert any("the-dear-one" in note for note in table.notes)


def test_tasks_that_are_not_at_hand_keep_their_slug(campaign: Make) -> None:
    found = by_id(all_tables(campaign(), {}))
    assert "brain_vessels" in {cells(found["table3"], k)["task"] for k in range(16)}
    assert all_figures(campaign(), {})


def test_strata_count_runs_in_every_cell(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    found = by_id(all_tables(campaign(), tasks))
    kinds = ("subtask", "dimension", "difficulty", "modality", "input_size", "chained_subtasks", "artifact_chain_depth")
    for kind in kinds:
        table = found[f"by_{kind}"]
        total = 0
        for row in range(len(table.rows)):
            shown = cells(table, row)
            (runs,) = re.findall(r"\(n = (\d+)\)", shown["codex[m-brief]"])
            assert int(runs) == 3 * int(shown["tasks"])
            total += int(shown["tasks"])
        assert total == 16 or kind == "subtask"


def test_strata_values_are_means_of_task_means(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    runs = campaign()
    easy = [slug for slug, task in tasks.items() if task.difficulty == "easy"]
    expected = np.mean([np.mean([run.outcome for run in runs if run.task == slug]) for slug in easy])
    cell = by_id(all_tables(runs, tasks))["by_difficulty"].rows[0][2]
    assert isinstance(cell, Cell)
    assert cell.value == pytest.approx(expected)


def test_tags_have_outcomes(campaign: Make, tasks: dict[str, TaskSpec]) -> None:
    runs = campaign(repeats=1)
    runs[0] = replace(runs[0], tags=("wrong method", "retry loop"), outcome=0.1)
    runs[1] = replace(runs[1], tags=("wrong method",), outcome=0.3)
    table = by_id(all_tables(runs, tasks))["by_tag"]
    assert [(cells(table, k)["tag"], cells(table, k)["n"], cells(table, k)["outcome"]) for k in range(2)] == [
        ("retry loop", "1", "0.10"),
        ("wrong method", "2", "0.20"),
    ]


def test_chain_depth(tasks: dict[str, TaskSpec]) -> None:
    assert chain_depth(tasks["hela_segmentation"]) == 1  # find
    assert chain_depth(tasks["bacteria_tracking"]) == 2  # find, relate
    assert chain_depth(tasks["brain_vessels"]) == 2  # two ways to find count once, then measure
    assert chain_depth(tasks["tile_stitching"]) == 4  # prepare, find, relate, measure
    assert set(strata(tasks)["artifact-chain depth"]) == {"1", "2", "3+"}


def test_many_configurations_compare_neighbours_only(tasks: dict[str, TaskSpec], campaign: Make) -> None:
    runs = campaign([f"a{number}[m-brief]" for number in range(45)], repeats=1)
    table = by_id(all_tables(runs, tasks))["differences"]
    assert len(table.rows) == 44 + 43  # neighbours in rank, and each with the best
    assert any("neighbours" in note for note in table.notes)


# --- figures -------------------------------------------------------------------------------------------------------


def test_figures_of_the_paper(paper: list[Run], tasks: dict[str, TaskSpec]) -> None:
    figures = all_figures(paper, tasks)
    expected = {
        "figure1c",
        "figure2a",
        "figure2b",
        "figure2c",
        "figure2d",
        "figure2e",
        "figure3a",
        "figure3b",
        "figure4",
    }
    assert expected | {"figure6", "intervals", "ranks", "profiles"} <= {figure.id for figure in figures}
    for figure in figures:
        assert len(figure.alt) > 40
        assert figure.data is not None
        assert figure.data.rows
    alt = {figure.id: figure.alt for figure in figures}
    assert "38 of 94 pairs" in alt["figure3a"]
    assert "r = 0.29 over all, 0.09" in alt["figure2e"]
    assert "task 63 %, task × configuration 13 %, run to run 21 %, configuration 3 %" in alt["figure3b"]
    assert "0.55, 0.61, 0.58" in alt["figure6"]
    assert "20 of 70 pairs" in alt["figure6"]


def test_best_are_boxed_and_refusals_marked(paper: list[Run], tasks: dict[str, TaskSpec]) -> None:
    (study,) = studies(paper, tasks)
    six = Study("full", study.focus, tasks)
    figure = next(figure for figure in all_figures(six.runs, tasks) if figure.id == "figure2a")
    assert figure.svg.count(b"#d55e00") >= 16  # one box per task and the shared ones
    assert figure.svg.count(b">R</text>") == 2
    assert b">0.96</text>" in figure.svg


def test_same_runs_give_the_same_bytes(paper: list[Run], tasks: dict[str, TaskSpec]) -> None:
    one, two = (next(f for f in all_figures(paper, tasks) if f.id == "figure2d") for _ in range(2))
    assert one.svg == two.svg
    assert one.png == two.png
    assert one.png.startswith(b"\x89PNG")
    ElementTree.fromstring(one.svg)


@pytest.mark.parametrize("repeats", [1, 3])
def test_small_campaigns_draw_what_they_can(campaign: Make, tasks: dict[str, TaskSpec], repeats: int) -> None:
    runs = campaign(repeats=repeats)
    ids = {figure.id for figure in all_figures(runs, tasks)}
    assert {"figure2a", "intervals"} <= ids
    assert ("figure3a" in ids) == (repeats > 1)
    for figure in all_figures(runs[:1], tasks):
        assert figure.svg
    unscored = [replace(run, status="refused", outcome=None) for run in runs]
    assert {figure.id for figure in all_figures(unscored, tasks)} == {"figure1c"}
    assert by_id(all_tables(unscored, tasks))["table1"].rows
    assert all_tables([], {}) == []


def test_export_writes_every_form(campaign: Make, tasks: dict[str, TaskSpec], tmp_path: Path) -> None:
    made = export(campaign(repeats=1)[:3], tasks, tmp_path)
    for table in made.tables:
        assert all((tmp_path / "tables" / f"{table.id}.{suffix}").stat().st_size for suffix in ("csv", "md", "html"))
    for figure in made.figures:
        assert all((tmp_path / "figures" / f"{figure.id}.{suffix}").stat().st_size for suffix in ("svg", "png", "csv"))
    assert (tmp_path / "runs.csv").is_file()
