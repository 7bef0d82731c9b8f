use std::{
    io,
    sync::{Arc, Mutex},
};

use codex_bridge::{
    config::{Exclusion, Log, LogFormat, Secret, UnknownTools},
    telemetry,
};
use http::Response;
use http_body_util::{BodyExt, Full};
use pretty_assertions::assert_eq;
use serde_json::{Value, json};

use crate::{
    scripted::{Scripted, gated, json as json_answer, props},
    support::{Bridge, config, nobody, soon},
};

#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Lines {
    /// Captures what this thread logs, which in these tests is everything.
    pub(crate) fn capture(&self) -> tracing::subscriber::DefaultGuard {
        let log = Log {
            format: LogFormat::Json,
            filter: "info".to_owned(),
        };
        let writer = self.clone();
        let subscriber = telemetry::subscriber(&log, move || writer.clone(), false).unwrap();
        tracing::subscriber::set_default(subscriber)
    }

    pub(crate) fn requests(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap())
            .filter(|line| line["message"] == "request")
            .collect()
    }
}

#[tokio::test]
async fn a_request_is_one_line_without_secrets_or_bodies() {
    let lines = Lines::default();
    let _guard = lines.capture();
    let mut config = config(nobody());
    config.listen.api_key = Some(Secret::new("k-test"));
    let bridge = Bridge::start(config).await;
    let request = bridge.post("/v1/responses").bearer_auth("k-test");
    let request = request
        .header("x-request-id", "turn-7")
        .body("[\"private\"]");
    let length = request.send().await.unwrap().bytes().await.unwrap().len();
    let [line] = &lines.requests()[..] else {
        panic!("one line was due: {:?}", lines.requests());
    };
    for (key, value) in [
        ("id", json!("turn-7")),
        ("method", json!("POST")),
        ("route", json!("responses")),
        ("status", json!(400)),
        ("end", json!("complete")),
        ("bytes_in", json!(11)),
        ("bytes_out", json!(length)),
    ] {
        assert_eq!(line[key], value, "{key}");
    }
    assert!(line["ttfb_ms"].is_number() && line["duration_ms"].is_number());
    let text = line.to_string();
    assert!(
        !text.contains("k-test") && !text.contains("private"),
        "{text}"
    );
}

#[tokio::test]
async fn the_line_is_written_when_the_last_byte_is_gone_or_the_client_is() {
    let lines = Lines::default();
    let _guard = lines.capture();
    let (feed, body) = gated();
    let body = Arc::new(Mutex::new(Some(body)));
    let server = Scripted::start(move |_| {
        let answer = Response::new(body.lock().unwrap().take().unwrap());
        async move { answer }
    })
    .await;
    let mut config = config(nobody());
    config.mcp_proxy = Some(format!("http://{}/s", server.address).parse().unwrap());
    let bridge = Bridge::start(config).await;
    let mut answer = bridge.get("/mcp/a").send().await.unwrap();
    feed.send("12345").await.unwrap();
    answer.chunk().await.unwrap();
    assert_eq!(lines.requests().len(), 0);
    drop(answer);
    soon(feed.closed()).await;
    let [line] = &lines.requests()[..] else {
        panic!("one line was due: {:?}", lines.requests());
    };
    assert_eq!(line["end"], "cut");
    assert_eq!(line["bytes_out"], 5);
    assert_eq!(line["upstream_status"], 200);
    let metrics = bridge
        .get("/metrics")
        .send()
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(
        metrics.contains("codex_bridge_disconnects_total 1"),
        "{metrics}"
    );
}

#[tokio::test]
async fn what_was_left_out_or_mended_stands_in_the_line() {
    let call = |id: &str| json!({"id": id, "type": "function_call", "call_id": id, "name": "a", "arguments": "{}", "status": "completed"});
    let done = |id: &str| json!({"type": "response.output_item.done", "item": call(id)});
    let end = json!({"type": "response.completed", "response": {"id": "r", "object": "response", "status": "completed", "output": [call("f")]}});
    let mut stream: Vec<u8> = [done("f"), done("g")]
        .iter()
        .flat_map(|event| format!("data: {event}\n\n").into_bytes())
        .collect();
    stream.extend_from_slice(b": \xff\n\n");
    stream.extend_from_slice(format!("data: {end}\n\n").as_bytes());
    let server = Scripted::start(move |request| {
        let answer = match request.uri().path() {
            "/props" => json_answer(200, &props()),
            _ => Response::builder()
                .header("content-type", "text/event-stream")
                .body(BodyExt::boxed(Full::new(stream.clone().into())))
                .unwrap(),
        };
        async move { answer }
    })
    .await;
    let lines = Lines::default();
    let _guard = lines.capture();
    let mut config = config(server.address);
    config.policy.unknown_tools = UnknownTools::Drop;
    config.policy.excluded_mcp_tools = vec![Exclusion {
        namespace: "mcp__x".to_owned(),
        tools: vec!["b".to_owned()],
    }];
    let bridge = Bridge::start(config).await;
    let function =
        |name: &str| json!({"type": "function", "name": name, "parameters": {"type": "object"}});
    for stream in [true, false] {
        let body = json!({"model": "m", "stream": stream, "parallel_tool_calls": false,
        "tools": [
            function("a"),
            {"type": "namespace", "name": "mcp__x", "tools": [function("b")]},
            {"type": "novelty"},
        ],
        "input": [
            {"type": "reasoning", "id": "rs", "summary": []},
            {"type": "message", "role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "c", "name": "a", "arguments": "{}"},
        ]});
        let request = bridge.post("/v1/responses").body(body.to_string());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.bytes().await.unwrap();
        let requests = lines.requests();
        let line = requests.last().unwrap();
        for (key, value) in [
            ("tools_excluded", json!(1)),
            ("tools_withheld", Value::Null),
            ("dropped_tools", json!("novelty 1")),
            ("dropped_items", json!("reasoning 1")),
            ("mended_items", json!("call without an output 1")),
            ("dropped_calls", json!(1)),
            ("mended_patches", Value::Null),
            ("replaced_sequences", json!(1)),
        ] {
            assert_eq!(line[key], value, "{key} of {line}");
        }
    }
}

#[tokio::test]
async fn the_model_served_is_the_one_that_was_asked_upstream() {
    // Some servers name their model in words of their own.
    let object = json!({"id": "r", "object": "response", "status": "completed", "model": "/models/tiny.gguf", "output": []});
    let end = json!({"type": "response.completed", "response": object});
    let server = Scripted::start(move |request| {
        let path = request.uri().path().to_owned();
        let refuses = request.headers().contains_key("traceparent");
        let answer = match path.as_str() {
            "/props" => json_answer(200, &props()),
            _ if refuses => json_answer(400, &json!({"error": {"message": "no"}})),
            _ => Response::builder()
                .header("content-type", "text/event-stream")
                .body(BodyExt::boxed(Full::new(format!("data: {end}\n\n").into())))
                .unwrap(),
        };
        async move { answer }
    })
    .await;
    let lines = Lines::default();
    let _guard = lines.capture();
    let mut config = config(server.address);
    config.policy.model_aliases = [("*".to_owned(), "tiny".to_owned())].into();
    let bridge = Bridge::start(config).await;
    let traced = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    for (fields, trace, served) in [
        (json!({"stream": true}), None, json!("tiny")),
        (json!({"stream": false}), None, json!("tiny")),
        (json!({"stream": true}), traced, Value::Null),
        (json!({"generate": false}), None, Value::Null),
        (json!({"tools": 5}), None, Value::Null),
    ] {
        let mut body = json!({"model": "gpt-5", "input": "hi"});
        let fields = fields.as_object().unwrap().clone();
        body.as_object_mut().unwrap().extend(fields);
        let mut request = bridge.post("/v1/responses").body(body.to_string());
        if let Some(trace) = trace {
            request = request.header("traceparent", trace);
        }
        request.send().await.unwrap().bytes().await.unwrap();
        let requests = lines.requests();
        let line = requests.last().unwrap();
        assert_eq!(
            (&line["model_asked"], &line["model_served"]),
            (&json!("gpt-5"), &served),
            "{body}: {line}"
        );
    }
    assert_eq!(lines.requests().len(), 5);
}
