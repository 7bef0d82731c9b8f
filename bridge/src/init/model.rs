//! Which model Codex will find behind the bridge: said by the user, or asked from the upstream. Only the window is assumed
//! where a server that answers does not tell it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};
use tracing::Level;

use super::{Error, Wishes};
use crate::{
    cli::MAX_CONTEXT,
    config::{BundledUpstream, HttpUpstream, UpstreamConfig},
    pull, telemetry,
    upstream::{
        bundled::{self, CONTEXT_LENGTH, Fault},
        client::{self, authority},
        place,
        probe::{self, Bounds, ProbeError, Reply},
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

const ASSUMED_CONTEXT: u64 = 32768;
const BOUNDS: Bounds = Bounds {
    patience: Duration::from_secs(2),
    bytes: 16 * 1024 * 1024,
};
/// A server that was started a moment ago may not listen yet.
const START: Duration = Duration::from_secs(3);
/// Pauses between two tries: doubled from the first to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// A value and where it comes from.
struct Told<T> {
    value: T,
    origin: String,
}

impl Model {
    /// The model, and a line for each thing that says where it comes from.
    pub(super) async fn find(
        wishes: &Wishes,
        upstream: &UpstreamConfig,
    ) -> Result<(Self, Vec<String>), Error> {
        let mut notes = Vec::new();
        let (answer, source) = match upstream {
            UpstreamConfig::Http(http) => {
                let answer = match ask(http, wishes).await {
                    Err(Error::Upstream(cause)) if wishes.need_no_answer() => {
                        notes.push(cause.to_string());
                        Answer::default()
                    }
                    outcome => outcome?,
                };
                (answer, format!("told by {}", http.base_url))
            }
            UpstreamConfig::Bundled(engine) => look(engine, wishes.context)?,
        };
        let name = told("model", wishes.model.clone(), answer.name, &source);
        let name = name.ok_or(Error::Nameless)?;
        let context = told("context", wishes.context, answer.context, &source);
        let context = context.unwrap_or_else(|| Told {
            value: ASSUMED_CONTEXT,
            origin: "assumed; --context sets it".to_owned(),
        });
        notes.push(format!("model: {} ({})", name.value, name.origin));
        notes.push(format!("context: {} ({})", context.value, context.origin));
        notes.push(format!(
            "images: {}",
            match answer.vision {
                Some(vision) => format!("{} ({source})", if vision { "yes" } else { "no" }),
                None => "no (assumed)".to_owned(),
            }
        ));
        if wishes.context.is_none() && answer.context.is_none() {
            notes.push(format!(
                "warning: nobody told the context window; where it is not {ASSUMED_CONTEXT} tokens, Codex makes its prompts too long or too short (--context sets it)"
            ));
        }
        let model = Self {
            name: name.value,
            context: context.value,
            vision: answer.vision.unwrap_or(false),
        };
        Ok((model, notes))
    }
}

/// What the user said, else what the upstream told.
fn told<T>(what: &str, said: Option<T>, told: Option<T>, source: &str) -> Option<Told<T>> {
    let (value, origin) = match (said, told) {
        (Some(said), _) => (said, format!("from --{what}")),
        (None, Some(told)) => (told, source.to_owned()),
        (None, None) => return None,
    };
    Some(Told { value, origin })
}

/// The bundled engine's model: from its file where it is here, else from the list of aliases. Nothing is fetched.
fn look(engine: &BundledUpstream, asked: Option<u64>) -> Result<(Answer, String), Error> {
    let path = match pull::find(&engine.model, &engine.places) {
        Ok(None) if pull::is_path(&engine.model) => {
            let missing = pull::Error::Missing(engine.model.clone().into());
            return Err(Fault::from(&missing).into());
        }
        Ok(path) => path,
        Err(error) if error.is_missing() => return Err(Fault::from(&error).into()),
        // Where there is no place for models there is no model.
        Err(_) => None,
    };
    let inspected = match &path {
        Some(path) => Some(bundled::inspect(path, None)?),
        None => None,
    };
    let name = pull::name(&engine.model);
    let trained = match (&inspected, pull::named(&engine.model)) {
        (Some(inspection), _) => Some(inspection.context),
        (None, Some(alias)) => Some(alias.context),
        (None, None) => None,
    };
    let chosen = engine
        .context_length
        .and_then(|tokens| u64::try_from(tokens).ok());
    if let (Some(chosen), Some(trained)) = (chosen, trained)
        && chosen > trained
    {
        let problem =
            format!("{chosen}; at most {trained} is allowed, what {name} was trained for");
        return Err(Fault::setting(CONTEXT_LENGTH, &problem).into());
    }
    let context = chosen.or(trained);
    if let (Some(asked), Some(most)) = (asked, context)
        && asked > most
    {
        let reason = match chosen {
            Some(_) => format!("what {CONTEXT_LENGTH} says"),
            None => format!("what {name} was trained for"),
        };
        return Err(Error::Context {
            asked,
            most,
            reason,
        });
    }
    let source = match &path {
        Some(path) => format!("from {}", path.display()),
        None => "of the bundled engine, whose model is not here yet".to_owned(),
    };
    let answer = Answer {
        name: Some(name),
        context,
        vision: Some(false),
    };
    Ok((answer, source))
}

/// What an upstream tells about its model.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Answer {
    name: Option<String>,
    context: Option<u64>,
    vision: Option<bool>,
}

/// Waits for a server that is loading its model, as the bridge would.
async fn ask(upstream: &HttpUpstream, wishes: &Wishes) -> Result<Answer, Error> {
    let began = Instant::now();
    let mut pause = FIRST_PAUSE;
    let mut is_told = false;
    loop {
        let fault = match ask_once(upstream, wishes.model.as_deref()).await {
            Err(Error::Upstream(fault)) => fault,
            outcome => return outcome,
        };
        let wait = upstream.wait_for_ready.unwrap_or_default();
        let patience = match fault {
            _ if wishes.need_no_answer() => Duration::ZERO,
            ProbeError::Loading { .. } => wait,
            ProbeError::Unreachable { .. } => wait.min(START),
            _ => Duration::ZERO,
        };
        if began.elapsed() + pause > patience {
            return Err(fault.into());
        }
        if matches!(fault, ProbeError::Loading { .. }) && !is_told {
            is_told = true;
            let line = format!("{fault}; waiting up to {wait:?}");
            telemetry::tell(Level::INFO, &line);
        }
        sleep(pause).await;
        pause = (pause * 2).min(LAST_PAUSE);
    }
}

async fn ask_once(upstream: &HttpUpstream, wanted: Option<&str>) -> Result<Answer, Error> {
    let base = &upstream.base_url;
    let client = client::build(base, BOUNDS.patience)?;
    let list = place::below(base, "models");
    let path = list.path().to_owned();
    let (props, models) = tokio::join!(
        probe::get(&client, upstream, place::beside_v1(base, "props"), BOUNDS),
        probe::get(&client, upstream, list, BOUNDS)
    );
    if [&props, &models]
        .into_iter()
        .flatten()
        .any(Reply::is_loading)
    {
        let server = authority(base);
        return Err(ProbeError::Loading { server }.into());
    }
    // A server that answers anything but JSON with a success has said nothing.
    let said = |reply: &Result<Reply, ProbeError>| {
        let reply = reply.as_ref().ok()?;
        reply.status.is_success().then(|| reply.json()).flatten()
    };
    match (said(&props), said(&models)) {
        (None, None) => {
            let models = models?;
            let server = authority(base);
            let fault = match models.status.is_success() {
                true => ProbeError::NotModels { server, path },
                false => models.status_error(upstream),
            };
            Err(fault.into())
        }
        (props, models) => Ok(Answer::of(
            &props.unwrap_or_default(),
            &models.unwrap_or_default(),
            wanted,
        )),
    }
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
