"""`gear compare`: methods × seeds on one task, equal compute, paired statistics, controls.

The plan, the parallel runs, the statistics, and the table and page that show them. Every run is an ordinary run folder of
`training`; nothing here trains or evaluates in another way."""
