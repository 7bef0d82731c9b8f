//! The words a model reads about a tool. A grammar the upstream cannot enforce is at least told.

use super::declare::{Body, Declaration};

const EXAMPLE_PATCH: &str = "\
Example of an input:
*** Begin Patch
*** Update File: src/lib.rs
@@ fn area
-    width * width
+    width * height
*** Add File: notes/todo.txt
+first line
*** End Patch";

/// The description sent upstream: that of the namespace, then the tool's own, joined by a blank line.
pub(super) fn describe(declaration: &Declaration) -> String {
    let own = match &declaration.body {
        Body::Function(_) | Body::ToolSearch { .. } => declaration.description.clone(),
        Body::Custom { grammar } => {
            let description = match declaration.description.as_str() {
                "" => "A free-form tool: its whole input is one text.",
                own => own,
            };
            let grammar = grammar.as_ref().map(|grammar| {
                format!(
                    "The input must match this {} grammar:\n{}",
                    grammar.syntax, grammar.definition
                )
            });
            let example = (declaration.id.name == "apply_patch").then_some(EXAMPLE_PATCH);
            joined([
                description,
                grammar.as_deref().unwrap_or(""),
                example.unwrap_or(""),
            ])
        }
    };
    joined([declaration.namespace_description.as_str(), own.as_str()])
}

fn joined<const N: usize>(parts: [&str; N]) -> String {
    let told: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    told.join("\n\n")
}
