//! Which model Codex will find behind the bridge: asked from the upstream, said by the user, or assumed.

use std::time::Duration;

use serde_json::Value;
use url::Url;

use super::Wishes;
use crate::{
    cli::MAX_CONTEXT,
    config::{HttpUpstream, UpstreamConfig},
    upstream::{
        client, place,
        probe::{self, Bounds},
    },
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Model {
    /// Exactly as the upstream calls it: Codex looks its catalog up by this name.
    pub(super) name: String,
    /// Tokens that the server really keeps, not those the model was trained with.
    pub(super) context: u64,
    /// Takes images.
    pub(super) vision: bool,
}

const ASSUMED_NAME: &str = "local-model";
const ASSUMED_CONTEXT: u64 = 32768;
const BOUNDS: Bounds = Bounds {
    patience: Duration::from_secs(2),
    bytes: 16 * 1024 * 1024,
};

impl Model {
    /// The model, and a line for each thing that says where it comes from.
    pub(super) async fn find(
        wishes: &Wishes,
        upstream: &UpstreamConfig,
        given: bool,
    ) -> (Self, Vec<String>) {
        let asked = match upstream {
            UpstreamConfig::Http(http) if given => {
                Some((http, ask(http, wishes.model.as_deref()).await))
            }
            _ => None,
        };
        let mut notes = Vec::new();
        let answer = asked
            .as_ref()
            .map(|(_, answer)| answer.clone())
            .unwrap_or_default();
        let source = asked.as_ref().map_or_else(String::new, |(http, _)| {
            format!("told by {}", http.base_url)
        });
        if let Some((http, _)) = asked
            && answer == Answer::default()
        {
            notes.push(format!(
                "{} did not say which model it serves",
                http.base_url
            ));
        }
        let choose = |what: &str, said: Option<String>, told: Option<String>, assumed: String| {
            let (value, origin) = match (said, told) {
                (Some(said), _) => (said, format!("from --{what}")),
                (None, Some(told)) => (told, source.clone()),
                (None, None) => (assumed, format!("assumed; --{what} sets it")),
            };
            format!("{what}: {value} ({origin})")
        };
        let context = (wishes.context, answer.context);
        notes.push(choose(
            "model",
            wishes.model.clone(),
            answer.name.clone(),
            ASSUMED_NAME.to_owned(),
        ));
        notes.push(choose(
            "context",
            context.0.map(|tokens| tokens.to_string()),
            context.1.map(|tokens| tokens.to_string()),
            ASSUMED_CONTEXT.to_string(),
        ));
        let vision = answer.vision.unwrap_or(false);
        notes.push(format!(
            "images: {}",
            match answer.vision {
                Some(vision) => format!("{} ({source})", if vision { "yes" } else { "no" }),
                None => "no (assumed)".to_owned(),
            }
        ));
        let model = Self {
            name: wishes
                .model
                .clone()
                .or(answer.name)
                .unwrap_or_else(|| ASSUMED_NAME.to_owned()),
            context: context.0.or(context.1).unwrap_or(ASSUMED_CONTEXT),
            vision,
        };
        (model, notes)
    }
}

/// What an upstream tells about its model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Answer {
    name: Option<String>,
    context: Option<u64>,
    vision: Option<bool>,
}

async fn ask(upstream: &HttpUpstream, wanted: Option<&str>) -> Answer {
    let base = &upstream.base_url;
    let (props, models) = tokio::join!(
        get(upstream, place::beside_v1(base, "props")),
        get(upstream, place::below(base, "models"))
    );
    Answer::of(
        &props.unwrap_or_default(),
        &models.unwrap_or_default(),
        wanted,
    )
}

/// A server that answers anything but JSON with a success has said nothing.
async fn get(upstream: &HttpUpstream, url: Url) -> Option<Value> {
    let client = client::build(&upstream.base_url, BOUNDS.patience).ok()?;
    let reply = probe::get(&client, upstream, url, BOUNDS).await.ok()?;
    reply.status.is_success().then(|| reply.json()).flatten()
}

impl Answer {
    /// `/props` is llama-server's; `/v1/models` everybody's, with the window in it where the server knows it.
    fn of(props: &Value, models: &Value, wanted: Option<&str>) -> Self {
        let entries = models["data"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let entry = entries
            .iter()
            .find(|entry| entry["id"].as_str() == wanted)
            .or(entries.first());
        let entry = entry.unwrap_or(&Value::Null);
        let running = props["default_generation_settings"]["n_ctx"].as_u64();
        Self {
            name: entry["id"]
                .as_str()
                .filter(|name| !name.is_empty())
                .map(str::to_owned),
            context: running
                .filter(|tokens| *tokens > 0)
                .or_else(|| probe::context_of(entry))
                .filter(|tokens| *tokens <= MAX_CONTEXT),
            vision: props["modalities"]["vision"].as_bool(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_running_window_wins_over_every_other_number() {
        let props =
            json!({"default_generation_settings": {"n_ctx": 8192}, "modalities": {"vision": true}});
        let models = json!({"data": [{"id": "demo/coder-8b", "meta": {"n_ctx": 16384, "n_ctx_train": 131072}}]});
        let name = Some("demo/coder-8b".to_owned());
        for (props, models, expected) in [
            (
                &props,
                &models,
                Answer {
                    name: name.clone(),
                    context: Some(8192),
                    vision: Some(true),
                },
            ),
            (
                &Value::Null,
                &models,
                Answer {
                    name: name.clone(),
                    context: Some(16384),
                    vision: None,
                },
            ),
            (
                &Value::Null,
                &json!({"data": [{"id": "demo/coder-8b", "max_model_len": 4096}]}),
                Answer {
                    name,
                    context: Some(4096),
                    vision: None,
                },
            ),
            (&Value::Null, &json!({"data": []}), Answer::default()),
            // Codex's configuration is TOML, which has no such number.
            (
                &json!({"default_generation_settings": {"n_ctx": u64::MAX}}),
                &Value::Null,
                Answer::default(),
            ),
            (&json!([]), &json!("no"), Answer::default()),
        ] {
            assert_eq!(Answer::of(props, models, None), expected);
        }
    }

    #[test]
    fn the_wanted_model_is_looked_up_among_several() {
        let models = json!({"data": [{"id": "a", "max_model_len": 1000}, {"id": "b", "max_model_len": 2000}]});
        let found = |wanted| Answer::of(&Value::Null, &models, wanted).context;
        assert_eq!(
            (found(None), found(Some("b")), found(Some("c"))),
            (Some(1000), Some(2000), Some(1000))
        );
    }
}
