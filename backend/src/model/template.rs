//! Which of a model's chat templates is its chat template.

/// Some models have one template for plain chat and one, named `tool_use`, for tools. Codex always brings tools, so the second is taken where the first
/// does not know them.
pub(super) fn choose<'a>(default: Option<&'a str>, with_tools: Option<&'a str>) -> Option<&'a str> {
    match (default, with_tools) {
        (Some(default), _) if knows_tools(default) => Some(default),
        (_, Some(with_tools)) => Some(with_tools),
        (default, None) => default,
    }
}

/// Has the template a place for tools, the variable `tools`? Otherwise they are shown the way the model's family was taught.
pub(crate) fn knows_tools(source: &str) -> bool {
    source
        .split(|letter: char| !(letter.is_alphanumeric() || letter == '_'))
        .any(|word| word == "tools")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_with_tools_is_preferred_and_words_that_contain_tools_do_not_count() {
        let plain = "{{ messages }} {# my_tools #}";
        let tools = "{% if tools is defined %}";
        assert_eq!(choose(Some(plain), Some(tools)), Some(tools));
        assert_eq!(choose(Some(tools), Some(plain)), Some(tools));
        assert_eq!(choose(Some(plain), None), Some(plain));
        assert_eq!(choose(None, Some(tools)), Some(tools));
        assert_eq!(choose(None, None), None);
    }
}
