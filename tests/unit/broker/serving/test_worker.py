"""The thread for long computations: what it leaves behind."""

import asyncio
import gc
import weakref

from odradek.broker.serving.worker import ThreadWorker


class Decompressed:
    """The result of the work."""


def test_an_error_that_is_returned_does_not_keep_what_the_work_has_made():
    made = []

    def work():
        much = Decompressed()
        made.append(weakref.ref(much))
        try:
            int("not a record batch")
        except ValueError as error:
            return error
        return None

    async def story():
        answered = asyncio.get_running_loop().create_future()
        worker = ThreadWorker(asyncio.get_running_loop())
        worker.run(work, lambda _error: answered.set_result(None))
        await answered
        async with asyncio.timeout(10):
            while made[0]() is not None:  # noqa: ASYNC110 - the thread gives no signal
                await asyncio.sleep(0)

    gc.disable()
    try:
        asyncio.run(story())
    finally:
        gc.enable()
