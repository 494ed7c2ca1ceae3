"""What the library costs, next to floors and peers. Run ``python -m benchmarks --help``."""
