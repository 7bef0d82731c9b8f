//! The bundled engine in `/health`: the keys every upstream has, and below `engine` what only it can tell.

use serde_json::{Value, json};

use crate::upstream::bundled::{BackendStatus, Bundled, Condition, ModelInfo};

pub(super) fn describe(engine: &Bundled, condition: Condition) -> Value {
    let detail = match &condition {
        Condition::Failed(message) => Some(message.clone()),
        Condition::Fetching(step) => Some(format!("{} is being fetched", step.what)),
        Condition::Loading => Some("the model is being loaded".to_owned()),
        Condition::Ready { .. } | Condition::Stopped => None,
    };
    let state = match &condition {
        Condition::Fetching(_) => "fetching",
        Condition::Loading => "loading",
        Condition::Ready { .. } => "ready",
        Condition::Failed(_) => "failed",
        Condition::Stopped => "stopped",
    };
    let mut inner = json!({"state": state});
    let mut context = Value::Null;
    match condition {
        Condition::Fetching(step) => {
            inner["fetch"] = json!({"file": step.what, "done": step.done, "total": step.total});
        }
        Condition::Ready { model, status } => {
            context = model.context.into();
            inner["model"] = describe_model(&model);
            inner["device"] = json!({"name": model.device, "threads": model.threads});
            inner["queue"] = json!({"waiting": status.queued, "running": status.running});
            inner["pages"] = json!({
                "total": status.pages_total,
                "used": status.pages_used,
                "cached": status.pages_cached,
            });
            inner["tokens"] = describe_tokens(&status);
            inner["warnings"] = json!(model.warnings);
        }
        Condition::Loading | Condition::Failed(_) | Condition::Stopped => {}
    }
    json!({
        "reachable": true,
        "kind": "bundled",
        "model": engine.name(),
        "context": context,
        "vision": false,
        "detail": detail,
        "engine": inner,
    })
}

fn describe_model(model: &ModelInfo) -> Value {
    json!({
        "id": model.id,
        "format": model.format,
        "context": model.context,
        "trainedContext": model.trained_context,
        "parameters": model.parameters,
        "weightBytes": model.weight_bytes,
        "kvBytes": model.kv_bytes,
        "tokenizer": model.tokenizer,
        "vocabulary": model.vocab,
        "callSyntax": model.call_syntax,
        "templateKnowsTools": model.template_knows_tools,
    })
}

fn describe_tokens(status: &BackendStatus) -> Value {
    json!({
        "prompt": status.prompt_tokens,
        "cached": status.cached_tokens,
        "generated": status.generated_tokens,
        "drafted": status.drafted_tokens,
    })
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;
    use crate::{
        config::{Sources, UpstreamConfig},
        pull::Step,
    };

    fn engine() -> Bundled {
        match Sources::default().load().unwrap().config.upstream {
            UpstreamConfig::Bundled(settings) => Bundled::new(settings),
            UpstreamConfig::Http(_) => panic!("the default is the bundled engine"),
        }
    }

    #[test]
    fn a_fetch_shows_how_far_it_has_come() {
        let step = Step {
            what: "demo.gguf".to_owned(),
            done: 5,
            total: Some(10),
        };
        assert_eq!(
            describe(&engine(), Condition::Fetching(step)),
            json!({
                "reachable": true, "kind": "bundled", "model": "smollm2-135m", "context": null, "vision": false,
                "detail": "demo.gguf is being fetched",
                "engine": {"state": "fetching", "fetch": {"file": "demo.gguf", "done": 5, "total": 10}},
            })
        );
    }

    #[test]
    fn a_running_engine_shows_model_device_queue_and_pages() {
        let model = ModelInfo {
            id: "Demo".into(),
            format: "Q4_1".into(),
            context: 4096,
            trained_context: 8192,
            parameters: 7,
            weight_bytes: 8,
            kv_bytes: 9,
            device: "cpu (scalar, 3 threads)".into(),
            threads: 3,
            tokenizer: "gpt2 (smollm)".into(),
            vocab: 10,
            template_knows_tools: false,
            call_syntax: "smollm2",
            warnings: vec!["a small window".into()],
        };
        let status = BackendStatus {
            healthy: true,
            queued: 1,
            running: 2,
            pages_total: 30,
            pages_used: 4,
            pages_cached: 5,
            ..BackendStatus::default()
        };
        let told = describe(&engine(), Condition::Ready { model, status });
        assert_eq!(told["context"], 4096);
        assert_eq!(
            [
                &told["engine"]["device"],
                &told["engine"]["queue"],
                &told["engine"]["pages"]
            ],
            [
                &json!({"name": "cpu (scalar, 3 threads)", "threads": 3}),
                &json!({"waiting": 1, "running": 2}),
                &json!({"total": 30, "used": 4, "cached": 5}),
            ]
        );
        assert_eq!(told["engine"]["warnings"], json!(["a small window"]));
    }
}
