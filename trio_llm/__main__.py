"""``python -m trio_llm``: the same as ``trio-llm``."""

from .cli.main import main

if __name__ == "__main__":
    main()
