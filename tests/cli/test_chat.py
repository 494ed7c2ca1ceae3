"""``trio-llm chat`` end to end, over a real connection."""

import io
import json
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest
import trio

from trio_llm.cli.main import main
from trio_llm.testing.wire_script import (
    Gate,
    Hold,
    Pause,
    Repeat,
    Reset,
    Response,
    event_stream,
    json_response,
)
from trio_llm.testing.wire_server import WireServer, unused_port

from .process import KEY, command, environment, run, run_here, started

KEYED = environment(DEEPSEEK_API_KEY=KEY)


def delta(**fields: object) -> bytes:
    choice = {"index": 0, "delta": fields, "finish_reason": None}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


END = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],'
    b'"usage":{"prompt_tokens":12,"completion_tokens":5,"prompt_cache_hit_tokens":8}}\n\n'
    b"data: [DONE]\n\n"
)


async def test_without_a_key_the_demo_answers_and_says_so() -> None:
    result = await run("chat", "count to 3")
    assert result.out == "1 2 3\n"
    notice, thought, end = result.err.splitlines()
    assert notice == (
        "DEEPSEEK_API_KEY is not set, so the built-in demo provider answers: "
        "a small web server inside this program, and no model."
    )
    assert thought.startswith("There is no model here")
    assert end.startswith("stop · 3 tokens in, ")
    assert result.status == 0


async def test_a_proxy_does_not_come_between_the_demo_and_the_user() -> None:
    proxied = environment(HTTP_PROXY=f"http://127.0.0.1:{unused_port()}", NO_PROXY="")
    result = await run("chat", "count to 2", env=proxied)
    assert (result.status, result.out) == (0, "1 2\n")


async def test_the_request_says_what_the_options_say() -> None:
    async with WireServer([event_stream(delta(content="Hi"), END)]) as server:
        result = await run(
            *("chat", "Hello", "--base-url", server.base_url + "/v9", "--model", "m", "--effort", "low"),
            *("--system", "Be brief.", "--max-tokens", "7"),
            env=KEYED,
        )
    assert (result.status, result.out) == (0, "Hi\n")
    assert result.err.startswith("stop · 4 tokens in (+8 cached), 5 out · ")
    (request,) = server.requests
    assert request.target == "/v9/chat/completions"
    assert request.header("authorization") == f"Bearer {KEY}"
    body = request.json()
    assert (body["model"], body["max_tokens"], body["reasoning_effort"]) == ("m", 7, "low")
    assert [message["content"] for message in body["messages"]] == ["Be brief.", "Hello"]


async def test_json_prints_chunks_and_nothing_else() -> None:
    result = await run("chat", "count to 2", "--json")
    chunks = [json.loads(line) for line in result.out.splitlines()]
    assert chunks[0] == {"type": "block-start", "index": 0, "blockType": "reasoning"}
    assert [chunk["text"] for chunk in chunks if chunk["type"] == "text-delta"] == ["1 ", "2"]
    assert [chunk["type"] for chunk in chunks[-2:]] == ["usage", "finish"]
    assert result.err.startswith("DEEPSEEK_API_KEY is not set")
    assert result.status == 0


async def test_prompt_may_come_through_a_pipe() -> None:
    assert (await run("chat", stdin=b"please\ncount to 2\n")).out == "1 2\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("chat",), "The prompt is empty. Give it as an argument or on standard input;"),
        (("chat", " "), "The prompt is empty."),
        (("chat", "x", "--model", ""), "The model's id is empty."),
        (("chat", "x", "--max-tokens", "0"), "0 is not in the range x>=1"),
    ],
)
def test_wrong_use_is_explained(arguments: tuple[str, ...], said: str) -> None:
    result = run_here(*arguments)
    assert result.status == 2
    assert said in result.err


async def test_a_key_that_is_refused() -> None:
    refusal = json_response({"error": {"message": "no such key", "type": "authentication_error"}}, 401)
    async with WireServer(refusal) as server:
        result = await run("chat", "Hello", "--base-url", server.base_url, env=KEYED)
    assert result.status == 1
    assert result.out == ""
    assert result.err.splitlines() == [
        "AUTH (HTTP 401): no such key",
        "Check the key in DEEPSEEK_API_KEY: it may be mistyped, revoked, or for another endpoint.",
    ]


def test_a_key_that_cannot_be_sent_is_not_shown() -> None:
    result = run_here("chat", "Hello", DEEPSEEK_API_KEY="sk-sécret")
    assert result.status == 1
    assert result.err.startswith("INVALID_CREDENTIAL: ")
    assert "Look at what DEEPSEEK_API_KEY holds." in result.err
    assert "cret" not in result.err


def test_an_endpoint_of_ones_own_needs_a_key() -> None:
    result = run_here("chat", "Hello", "--base-url", "http://127.0.0.1:1")
    assert result.status == 1
    assert result.err.startswith("MISSING_CREDENTIAL: ")
    assert "Put a key into DEEPSEEK_API_KEY." in result.err


def test_nobody_listens() -> None:
    port = unused_port()
    result = run_here("chat", "Hello", "--base-url", f"http://127.0.0.1:{port}", DEEPSEEK_API_KEY=KEY)
    assert result.status == 1
    assert result.err.startswith("TRANSPORT: ")
    assert f"127.0.0.1:{port}" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("url", ["not a url", "ftp://127.0.0.1", "http://"])
def test_a_base_url_that_is_none(url: str) -> None:
    result = run_here("chat", "Hello", "--base-url", url, DEEPSEEK_API_KEY=KEY)
    assert result.status == 1
    assert result.err.startswith("INVALID_BASE_URL: ")
    assert "Traceback" not in result.err


def test_an_effort_that_does_not_exist() -> None:
    result = run_here("chat", "Hello", "--effort", "colossal", DEEPSEEK_API_KEY=KEY)
    assert result.status == 1
    assert "UNSUPPORTED_REASONING_EFFORT" in result.err
    assert "colossal" in result.err
    assert "`trio-llm models` lists each model's efforts." in result.err


def test_a_proxy_variable_that_holds_no_url() -> None:
    result = run_here("chat", "Hello", DEEPSEEK_API_KEY=KEY, HTTPS_PROXY="gopher://x")
    assert result.status == 1
    assert result.err.startswith("INVALID_CONFIG: ")
    assert "Traceback" not in result.err


async def test_a_failure_in_the_middle_keeps_what_came_before() -> None:
    async with WireServer([event_stream(delta(content="So far"), Reset())]) as server:
        result = await run("chat", "Hello", "--base-url", server.base_url, env=KEYED)
    assert (result.status, result.out) == (1, "So far\n")
    assert result.err.startswith("TRANSPORT: ")


async def test_a_busy_provider_says_how_long_to_wait() -> None:
    busy = json_response(
        {"error": {"message": "slow down"}}, 429, (("retry-after", "7"), ("x-request-id", "r-1"))
    )
    async with WireServer([busy]) as server:
        result = await run("chat", "Hello", "--base-url", server.base_url, env=KEYED)
    assert result.err.splitlines() == [
        "RATE_LIMIT (HTTP 429): slow down",
        "The provider asks to wait 7 s.",
        "Request id: r-1",
    ]


async def test_words_of_a_model_do_not_command_the_terminal() -> None:
    async with WireServer([event_stream(delta(content="a\x1b[2Jb\rc\n[red]d\u202e"), END)]) as server:
        result = await run("chat", "Hello", "--base-url", server.base_url, env=KEYED)
    assert result.out == "a\ufffd[2Jb\ufffdc\n[red]d\ufffd\n"


async def test_words_of_a_provider_do_not_command_the_terminal() -> None:
    finish = (
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"st\\u001b[2Jop"}]}\n\ndata: [DONE]\n\n'
    )
    async with WireServer([event_stream(delta(content="Hi"), finish)]) as server:
        result = await run("chat", "Hello", "--base-url", server.base_url, env=KEYED)
    assert result.status == 1
    assert result.err.startswith("ST\ufffd[2JOP: ")


async def test_tabs_stay_tabs() -> None:
    async with WireServer([event_stream(delta(content="a:\n"), delta(content="\tb\tc"), END)]) as server:
        result = await run("chat", "Hello", "--base-url", server.base_url, env=KEYED)
    assert result.out == "a:\n\tb\tc\n"


async def test_letters_that_the_output_cannot_encode_end_nothing() -> None:
    asked = command("chat", "say é \N{SNOWMAN}")
    done = await trio.run_process(
        asked, capture_stdout=True, capture_stderr=True, env={**environment(), "PYTHONIOENCODING": "latin-1"}
    )
    assert done.stdout.startswith(b'You said: "say \xe9 ?"\n')
    done = await trio.run_process(
        asked, capture_stdout=True, capture_stderr=True, env={**environment(), "PYTHONIOENCODING": "ascii"}
    )
    assert done.stdout.startswith('You said: "say é \N{SNOWMAN}"\n'.encode())  # click's last resort


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
async def test_output_that_cannot_be_written_ends_the_call_in_one_line() -> None:
    program = f"exec {shlex.join(command('chat', 'count to 3'))} > /dev/full"
    done = await trio.run_process(
        ["sh", "-c", program], capture_stderr=True, check=False, env=environment(), stdin=b""
    )
    assert done.stderr.decode().splitlines()[2:] == ["The conversation cannot go on: No space left on device"]
    assert done.returncode == 1


async def test_a_closed_standard_input_has_no_prompt() -> None:
    program = f"exec {shlex.join(command('chat'))} <&-"
    done = await trio.run_process(["sh", "-c", program], capture_stderr=True, check=False, env=environment())
    assert "The prompt is empty." in done.stderr.decode()
    assert done.returncode == 2


def test_ctrl_c_while_the_prompt_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupted(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    monkeypatch.setattr(sys, "argv", ["trio-llm", "chat"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130


async def test_a_tool_call_is_shown() -> None:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    finish = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    async with WireServer([event_stream(delta(content="Well."), delta(tool_calls=[call]), finish)]) as server:
        result = await run("chat", "Hello", "--base-url", server.base_url, env=KEYED)
    assert result.out == "Well.\n"
    shown, end = result.err.splitlines()
    assert shown == 'tool call: add({"a": 1})'
    assert end.startswith("tool-calls (tool_calls) · usage not reported · ")
    assert result.status == 0


@pytest.mark.parametrize("waiting", [Hold(), Gate(), Repeat((Pause(0.01), b": alive\n\n"))])
async def test_ctrl_c_ends_the_answer_and_tells_its_cost(waiting: Hold | Gate | Repeat) -> None:
    async with WireServer(event_stream(delta(content="One"), waiting)) as server:
        async with started("chat", "Hello", "--base-url", server.base_url, env=KEYED) as running:
            await running.read_until("One")
            running.process.send_signal(signal.SIGINT)
            result = await running.finish()
        await server.connections[0].ended.wait()
        assert server.connections[0].gone.is_set()
    assert result.out == "One\n"
    what, cost = result.err.splitlines()
    assert what == "ABORTED: stopped by Ctrl-C"
    assert cost.startswith("usage not reported · ")
    assert "bytes received · connection closed after " in cost
    assert result.status == 130


async def test_ctrl_c_before_the_first_byte() -> None:
    async with (
        WireServer([Response(before=[Hold()])]) as server,
        started("chat", "Hello", "--base-url", server.base_url, env=KEYED) as running,
    ):
        await server.wait_request()
        running.process.send_signal(signal.SIGINT)
        result = await running.finish()
    assert result.err.startswith("ABORTED: stopped by Ctrl-C\n")
    assert result.status == 130


async def test_ctrl_c_in_json_is_a_finish() -> None:
    async with (
        WireServer([event_stream(delta(content="One"), Hold())]) as server,
        started("chat", "Hello", "--json", "--base-url", server.base_url, env=KEYED) as running,
    ):
        await running.read_until("One")
        running.process.send_signal(signal.SIGINT)
        result = await running.finish()
    finish = json.loads(result.out.splitlines()[-1])
    assert (finish["type"], finish["reason"]["kind"]) == ("finish", "aborted")
    assert finish["reason"]["failure"]["code"] == "ABORTED"
    assert result.status == 130


@pytest.mark.parametrize("options", [(), ("--json",)])
async def test_a_reader_that_leaves_ends_the_call_quietly(options: tuple[str, ...]) -> None:
    flood = Repeat((delta(content="x" * 1000), Pause(0.001)))
    async with WireServer([event_stream(flood)]) as server:
        async with started("chat", "Hello", "--base-url", server.base_url, *options, env=KEYED) as running:
            await running.read_until("xxx")
            assert running.process.stdout is not None
            await running.process.stdout.aclose()
            assert running.process.stderr is not None
            err = b"".join([bytes(data) async for data in running.process.stderr])
            assert await running.process.wait() == 1
        await server.connections[0].ended.wait()
    assert err == b""


def test_models_lists_ids_windows_and_efforts() -> None:
    result = run_here("models")
    assert result.status == 0
    row = next(line for line in result.out.splitlines() if line.startswith("deepseek-v4-flash"))
    limit = r"(?:[\d,]+|unknown)"  # the data package may be there or not
    assert re.fullmatch(
        rf"deepseek-v4-flash +DeepSeek V4 Flash +[\d,]+ +{limit} +low, high\*, max, off *", row
    )


def test_version_and_help() -> None:
    assert run_here("--version").out.startswith("trio-llm, version ")
    shown = run_here("chat", "--help").out
    assert "[default: deepseek-v4-pro]" in " ".join(shown.split())
    assert "from the usual environment variable, such as DEEPSEEK_API_KEY." in " ".join(shown.split())


@pytest.mark.parametrize("missing", ["click", "rich"])
async def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    program = f"import sys; sys.modules[{missing!r}] = None; from trio_llm.__main__ import main; main()"
    done = await trio.run_process([sys.executable, "-c", program], capture_stderr=True, check=False)
    assert done.returncode == 1
    assert done.stderr.decode() == (
        f"trio-llm's command line needs {missing}, which is not installed.\n"
        "Install the extra that brings it:  pip install 'trio-llm[cli]'\n"
    )
