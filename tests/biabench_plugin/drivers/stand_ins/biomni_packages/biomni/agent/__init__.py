from biomni.agent.a1 import A1

__all__ = ["A1"]
