"""What is measured. Each measure is one coroutine function, run in a driver's worker.

They are written for anyio, because two peers need asyncio; on Trio it adds nothing inside what is measured.
"""
