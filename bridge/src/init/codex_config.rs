//! `codex.config.toml`: makes Codex talk to the bridge, and leaves out of its prompt what a local model has no use for.

use std::path::Path;

use super::{bridge_config::KEY_VARIABLE, model::Model};
use crate::{codex_model::compact_at, config::Loaded, health_check::reachable};

pub(super) fn render(model: &Model, loaded: &Loaded, catalog: &Path) -> String {
    let listen = &loaded.config.listen;
    let name = quoted(&model.name);
    let catalog = quoted(&catalog.to_string_lossy());
    let context = model.context;
    let compact = compact_at(context);
    let base_url = quoted(&format!(
        "http://{}:{}/v1",
        reachable(&listen.host),
        listen.port
    ));
    let web_search = match loaded.config.policy.web_search_tool {
        Some(_) => WEB_SEARCH_ON,
        None => WEB_SEARCH_OFF,
    };
    let key = match (
        &listen.api_key,
        loaded.effective["listen"]["apiKeyEnv"].as_str(),
    ) {
        (None, _) => String::new(),
        (Some(_), variable) => {
            format!(
                "# The bridge wants a key; Codex reads it from this variable.\nenv_key = {}\n",
                quoted(variable.unwrap_or(KEY_VARIABLE))
            )
        }
    };
    format!(
        r#"# Codex configuration for codex-bridge: the content of config.toml in ~/.codex, or in a folder named by CODEX_HOME.
# These keys count at the top level of that file only, not in a project's configuration.

model = {name}
model_provider = "codex_bridge"

# What Codex should know of the model; without this file it assumes a far larger window and gives no apply_patch.
model_catalog_json = {catalog}
model_context_window = {context}
model_auto_compact_token_limit = {compact}

{web_search}
# Left out of every prompt: texts about services that a local model cannot reach.
include_apps_instructions = false
# Left out to save tokens: how approvals work. Codex asks for them all the same.
include_permissions_instructions = false

[model_providers.codex_bridge]
name = "codex-bridge"
base_url = {base_url}
wire_api = "responses"
requires_openai_auth = false
supports_websockets = false
{key}# A long prompt can take a local model minutes to read; the bridge sends signs of life meanwhile.
stream_idle_timeout_ms = 1800000
# The bridge itself waits for a model that is still loading; more repetitions only hide the cause of a failure.
request_max_retries = 2
stream_max_retries = 2

[features]
apps = false
goals = false
# Sub-agents are switched off in the model catalog. Codex 0.120 wants it here (newer ones would warn):
# multi_agent = false
# Made by OpenAI's servers, which are not asked here.
image_generation = false

[skills]
include_instructions = false

[skills.bundled]
enabled = false
"#
    )
}

const WEB_SEARCH_OFF: &str = "\
# Hosted search is a service of OpenAI's servers. The bridge can put an MCP tool in its place: see `webSearchTool`
# in its configuration, then write \"live\" here.
web_search = \"disabled\"
";

const WEB_SEARCH_ON: &str = "\
# The bridge sends searches to the MCP tool named in its `webSearchTool`.
web_search = \"live\"
";

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
