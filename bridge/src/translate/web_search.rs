//! Hosted `web_search`: a local server has none, so one of Codex's own MCP tools stands in for it.

use protocol::{ToolKind, object::join};

use super::{Counts, Error, Tool, ToolCatalog, alias::sanitise, declare::HostedSearch};
use crate::config::{Policy, UnknownTools};

/// The tool that stands in for hosted search, if it is configured and declared.
pub(super) fn stand_in<'a>(catalog: &'a ToolCatalog, policy: &Policy) -> Option<&'a Tool> {
    let target = policy.web_search_tool.as_ref()?;
    let (namespace, name) = (target.namespace.as_str(), target.tool.as_str());
    let flat = format!("{}__{}", sanitise(namespace), sanitise(name));
    catalog
        .find(ToolKind::Function, Some(namespace), name)
        .or_else(|| catalog.find(ToolKind::Function, None, &flat))
}

/// Checks that every hosted search has a stand-in.
pub(super) fn check(
    searches: &[HostedSearch],
    catalog: &ToolCatalog,
    policy: &Policy,
    counts: &mut Counts,
) -> Result<(), Error> {
    if stand_in(catalog, policy).is_some() {
        return Ok(());
    }
    for search in searches {
        if policy.unknown_tools == UnknownTools::Refuse {
            let problem = missing(&search.kind, policy);
            return Err(Error::unsupported(join(&search.path, "type"), problem));
        }
        counts.drop_tool(&search.kind);
    }
    Ok(())
}

/// Why `kind` cannot be served, and both ways out.
pub(super) fn missing(kind: &str, policy: &Policy) -> String {
    let cause = match &policy.web_search_tool {
        None => "no MCP tool stands in for it: set webSearchTool in the bridge's configuration"
            .to_owned(),
        Some(target) => format!(
            "the tool \"{}\" in namespace \"{}\", which webSearchTool in the bridge's configuration names, is not \
             declared",
            target.tool, target.namespace
        ),
    };
    format!(
        "\"{kind}\" is hosted search, and {cause}; or turn it off with web_search = \"disabled\" in Codex's config.toml"
    )
}
