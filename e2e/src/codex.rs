//! The real Codex CLI in a home of its own, pointed at one base URL.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{process::Command, time};

use crate::{child::Child, install};

mod turn;

pub use turn::Turn;

const TERMINAL: &str = include_str!("../python/terminal.py");

/// The longest one `codex exec` may take; the usual turn takes two seconds.
const LIMIT: Duration = Duration::from_secs(150);

/// What scripted commands need, in a container too.
pub const FULL_ACCESS: &str = "danger-full-access";

/// A configured Codex. Runs share its home, so that a thread can be resumed.
#[derive(Debug)]
pub struct Codex {
    binary: PathBuf,
    base_url: String,
    folder: TempDir,
    /// Lines of `config.toml` at the top level, in the provider's table, and after all else.
    web_search: &'static str,
    sandbox: &'static str,
    top: Vec<String>,
    provider: Vec<String>,
    tables: Vec<String>,
    catalog: Value,
}

impl Codex {
    /// A small configuration: few tools, short instructions, one catalog entry. `base_url` ends in `/v1`.
    pub fn new(version: &str, base_url: &str) -> Result<Self> {
        let folder = tempfile::tempdir().context("a folder for Codex")?;
        for name in ["home", "tmp", "work"] {
            fs::create_dir(folder.path().join(name))?;
        }
        Ok(Self {
            binary: install::codex(version)?,
            base_url: base_url.to_owned(),
            folder,
            top: Vec::new(),
            web_search: "disabled",
            sandbox: FULL_ACCESS,
            provider: Vec::new(),
            tables: Vec::new(),
            catalog: catalog_entry(),
        })
    }

    /// Hosted search: `live`, `cached`, `indexed`; off unless said, since the bridge refuses it without a mapping.
    pub fn web_search(mut self, mode: &'static str) -> Self {
        self.web_search = mode;
        self
    }

    /// Commands may change nothing: for a model whose words nobody has chosen.
    pub fn read_only(mut self) -> Self {
        self.sandbox = "read-only";
        self
    }

    /// A line at the top of `config.toml`, e.g. `model_context_window = 4096`.
    pub fn set(mut self, line: &str) -> Self {
        self.top.push(line.to_owned());
        self
    }

    /// A line of `[model_providers.local]`, e.g. `stream_idle_timeout_ms = 2000`.
    pub fn provider(mut self, line: &str) -> Self {
        self.provider.push(line.to_owned());
        self
    }

    /// A whole table, e.g. `[features]\nmulti_agent = true`.
    pub fn table(mut self, table: &str) -> Self {
        self.tables.push(table.to_owned());
        self
    }

    /// Changes a field of the model's catalog entry.
    pub fn catalog(mut self, key: &str, value: Value) -> Self {
        self.catalog[key] = value;
        self
    }

    /// An MCP server that Codex starts itself.
    pub fn mcp_stdio(self, name: &str, command: &Path, arguments: &[&str]) -> Self {
        self.table(&format!(
            "[mcp_servers.{name}]\ncommand = {}\nargs = {}",
            json!(command),
            json!(arguments)
        ))
    }

    /// An MCP server reached by Streamable HTTP.
    pub fn mcp_http(self, name: &str, url: &str) -> Self {
        self.table(&format!("[mcp_servers.{name}]\nurl = {}", json!(url)))
    }

    /// Switches off what a small local model pays for in every prompt: about 1.9 k tokens are left.
    pub fn slim(self) -> Self {
        self.set("include_permissions_instructions = false")
            .set("include_apps_instructions = false")
            .set("include_environment_context = false")
            .table("[skills]\ninclude_instructions = false")
            .table("[agents]\nenabled = false")
            .table("[features]\ngoals = false")
    }

    /// The folder Codex works in.
    pub fn work(&self) -> PathBuf {
        self.folder.path().join("work")
    }

    /// Codex's own folder, `$CODEX_HOME`.
    pub fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// `codex exec`: one turn of a new thread.
    pub async fn exec(&self, prompt: &str) -> Result<Turn> {
        self.run(&["exec"], prompt).await
    }

    /// `codex exec resume --last`: a further turn of the last thread.
    pub async fn resume(&self, prompt: &str) -> Result<Turn> {
        self.run(&["exec", "resume", "--last"], prompt).await
    }

    async fn run(&self, subcommand: &[&str], prompt: &str) -> Result<Turn> {
        self.write_config()?;
        let mut command = Command::new(&self.binary);
        self.isolate(&mut command);
        run(command, self.sandbox, subcommand, prompt).await
    }

    /// The terminal interface with a first prompt, on a terminal of its own; it runs until dropped.
    ///
    /// `--no-daemon`: else it would leave a background server behind.
    pub fn terminal(&self, prompt: &str) -> Result<Child> {
        self.write_config()?;
        let mut command = Command::new("python3");
        self.isolate(&mut command);
        command
            .env("TERM", "xterm-256color")
            .args(["-c", TERMINAL])
            .arg(&self.binary);
        command.args(["--no-daemon", "-s", self.sandbox, prompt]);
        Child::spawn("the terminal interface of Codex", command)
    }

    /// An environment that holds nothing of the user's.
    fn isolate(&self, command: &mut Command) {
        command.env_clear().current_dir(self.work());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("HOME", self.home())
            .env("CODEX_HOME", self.home());
        // Codex makes no helper links in a home below the temporary folder, so that folder is another one.
        command.env("TMPDIR", self.folder.path().join("tmp"));
        command.env("LANG", "C.UTF-8").env("NO_PROXY", "*");
    }

    pub fn write_config(&self) -> Result<()> {
        let catalog = self.home().join("catalog.json");
        fs::write(&catalog, json!({"models": [self.catalog]}).to_string())?;
        let config = format!(
            "model = \"local-model\"\n\
             model_provider = \"local\"\n\
             model_catalog_json = {}\n\
             check_for_update_on_startup = false\n\
             {}\n\
             web_search = \"{}\"\n\n\
             [model_providers.local]\n\
             name = \"local\"\n\
             base_url = {}\n\
             wire_api = \"responses\"\n\
             requires_openai_auth = false\n\
             {}\n\n\
             [analytics]\n\
             enabled = false\n\n\
             [projects.{}]\n\
             trust_level = \"trusted\"\n\n\
             {}\n",
            json!(catalog),
            self.top.join("\n"),
            self.web_search,
            json!(self.base_url),
            self.provider.join("\n"),
            json!(self.work()),
            self.tables.join("\n\n"),
        );
        fs::write(self.home().join("config.toml"), config).context("write config.toml")
    }
}

/// Runs one turn with a prepared binary and environment, and collects what it says. `sandbox` is one of Codex's modes.
pub async fn run(
    mut command: Command,
    sandbox: &str,
    subcommand: &[&str],
    prompt: &str,
) -> Result<Turn> {
    let (first, rest) = subcommand.split_first().context("no subcommand")?;
    // `resume` takes no `-s`, so the sandbox is chosen before it.
    command.args([first, "--json", "--skip-git-repo-check", "-s", sandbox]);
    command.args(rest).args(["--", prompt]);
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let child = command
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let output = time::timeout(LIMIT, child.wait_with_output()).await;
    let output = output.with_context(|| format!("Codex still ran after {LIMIT:?}"))??;
    Ok(Turn::new(output.status, &output.stdout, &output.stderr))
}

/// A catalog entry that every tested release reads; older ones refuse missing fields.
fn catalog_entry() -> Value {
    json!({
        "slug": "local-model",
        "display_name": "Local model",
        "description": "",
        "supported_reasoning_levels": [],
        "shell_type": "unified_exec",
        "visibility": "list",
        "supported_in_api": true,
        "priority": 1,
        "availability_nux": null,
        "upgrade": null,
        "base_instructions": "You are a coding agent under test.",
        "support_verbosity": false,
        "default_verbosity": null,
        "apply_patch_tool_type": "freeform",
        "web_search_tool_type": "text",
        "truncation_policy": {"mode": "tokens", "limit": 10000},
        "context_window": 32768,
        "experimental_supported_tools": [],
        "input_modalities": ["text", "image"],
        "supports_search_tool": false,
        "supports_parallel_tool_calls": true,
        "supports_reasoning_summaries": true
    })
}
