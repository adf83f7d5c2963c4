"""The process score: a rubric of 105 items, judged on the evidence that a run left."""
