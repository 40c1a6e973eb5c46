"""Tool-use benchmarks: BFCL, ACEBench, τ-bench and τ²-bench, ToolRL, ToolSandbox. A package or a module for each.

Each has its data, its environment and its judge, and imports no other benchmark. What several share belongs in
`tasks` itself. Nothing here runs code that a model wrote."""
