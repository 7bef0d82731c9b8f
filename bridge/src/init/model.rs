//! Which model Codex will find behind the bridge: asked from the upstream, said by the user, or assumed.

use std::time::Duration;

use serde_json::Value;
use url::Url;

use super::Wishes;
use crate::{
    cli::MAX_CONTEXT,
    config::{BundledUpstream, HttpUpstream, UpstreamConfig},
    pull,
    upstream::{
        bundled, client, place,
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

/// A value and where it comes from.
struct Told<T> {
    value: T,
    origin: String,
}

impl Model {
    /// The model, and a line for each thing that says where it comes from.
    pub(super) async fn find(wishes: &Wishes, upstream: &UpstreamConfig) -> (Self, Vec<String>) {
        let mut notes = Vec::new();
        let (answer, source) = match upstream {
            UpstreamConfig::Http(http) => {
                let answer = ask(http, wishes.model.as_deref()).await;
                if answer == Answer::default() {
                    notes.push(format!(
                        "{} did not say which model it serves",
                        http.base_url
                    ));
                }
                (answer, format!("told by {}", http.base_url))
            }
            UpstreamConfig::Bundled(engine) => look(engine),
        };
        let name = told(
            "model",
            wishes.model.clone(),
            answer.name,
            &source,
            ASSUMED_NAME.to_owned(),
        );
        let context = told(
            "context",
            wishes.context,
            answer.context,
            &source,
            ASSUMED_CONTEXT,
        );
        notes.push(format!("model: {} ({})", name.value, name.origin));
        notes.push(format!("context: {} ({})", context.value, context.origin));
        notes.push(format!(
            "images: {}",
            match answer.vision {
                Some(vision) => format!("{} ({source})", if vision { "yes" } else { "no" }),
                None => "no (assumed)".to_owned(),
            }
        ));
        let model = Self {
            name: name.value,
            context: context.value,
            vision: answer.vision.unwrap_or(false),
        };
        (model, notes)
    }
}

/// What the user said, else what the upstream told, else what is assumed.
fn told<T>(what: &str, said: Option<T>, told: Option<T>, source: &str, assumed: T) -> Told<T> {
    let (value, origin) = match (said, told) {
        (Some(said), _) => (said, format!("from --{what}")),
        (None, Some(told)) => (told, source.to_owned()),
        (None, None) => (assumed, format!("assumed; --{what} sets it")),
    };
    Told { value, origin }
}

/// The bundled engine's model: from its file where it is here, else from the list of aliases. Nothing is fetched.
fn look(engine: &BundledUpstream) -> (Answer, String) {
    let path = pull::find(&engine.model, &engine.places).ok().flatten();
    let inspected = path
        .as_deref()
        .and_then(|path| bundled::inspect(path, None).ok());
    let trained = match (&inspected, pull::named(&engine.model)) {
        (Some(inspection), _) => Some(inspection.context),
        (None, Some(alias)) => Some(alias.context),
        (None, None) => None,
    };
    let chosen = engine
        .context_length
        .and_then(|tokens| u64::try_from(tokens).ok());
    let context = match (chosen, trained) {
        (Some(chosen), Some(trained)) => Some(chosen.min(trained)),
        (chosen, trained) => chosen.or(trained),
    };
    let source = match (&path, &inspected) {
        (Some(path), Some(_)) => format!("from {}", path.display()),
        _ => "of the bundled engine, whose model is not here yet".to_owned(),
    };
    let answer = Answer {
        name: Some(pull::name(&engine.model)),
        context,
        vision: Some(false),
    };
    (answer, source)
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
