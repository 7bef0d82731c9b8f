use super::*;
use crate::prompt::{probation::RENDERING, testing::DATE};

fn run(source: &str) -> Result<String, String> {
    let context = Value::from_pairs([
        ("s", Value::from(" <a> 'é' ")),
        (
            "m",
            Value::from_pairs([("k", Value::from(1)), ("n", Value::from(()))]),
        ),
        ("l", Value::from(vec![Value::from(1), Value::from(2)])),
    ]);
    Jinja::new(source, DATE, RENDERING)
        .and_then(|jinja| jinja.render(context, 64))
        .map_err(|error| error.to_string())
}

fn prints(source: &str, expected: &str) {
    assert_eq!(run(source).as_deref(), Ok(expected), "{source}");
}

/// Expectations made with jinja2 3.1's `ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)` and `transformers`' filters.
#[test]
fn templates_mean_what_they_mean_to_transformers() {
    prints("{% if true %}\n  x\n  {% endif %}\ny", "  x\ny");
    prints(
        "{{ m | tojson }}{{ s | tojson }}",
        r#"{"k": 1, "n": null}" <a> 'é' ""#,
    );
    prints("{{ l | tojson(indent=2) }}", "[\n  1,\n  2\n]");
    prints("{{ l | tojson(separators=[',', ':']) }}", "[1,2]");
    prints(
        "{{ s.strip() }}|{{ s | trim }}|{{ s.split('a')[0] }}",
        "<a> 'é'|<a> 'é'| <",
    );
    prints(
        "{{ m.items() | list }}{{ m.get('x', 'd') }}{% for k, v in m | items %}{{ k }}{% endfor %}",
        "[('k', 1), ('n', None)]dkn",
    );
    prints(
        "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}",
        "1",
    );
    prints(
        "{{ true }} {{ none }} {{ 1.0 }} {{ l }} {{ missing }}",
        "True None 1.0 [1, 2] ",
    );
    prints(
        "{% set ns = namespace(n=0) %}{% for x in l %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}",
        "3",
    );
    prints(
        "{{ 'a' is string and 'a' is iterable and l is sequence and m is mapping and 1 is not iterable }}",
        "True",
    );
    prints(
        "{% for x in l %}{{ loop.previtem }}{{ loop.nextitem }};{% endfor %}",
        "2;1;",
    );
    prints(
        "{%- generation -%} a {%- endgeneration %} b{% generation %}\nc\n{% endgeneration %}\n",
        "a bc\n",
    );
    prints("{{ strftime_now('%d %b %Y') }}", "05 Jul 2024");
    prints(
        "{{ 'x' if s.startswith(' ') else 'y' }}{{ l[-1] }}{{ l[1:] }}{{ ('a' ~ 1) }}",
        "x2[2]a1",
    );
}

#[test]
fn exceptions_of_a_template_are_told_with_their_line() {
    assert_eq!(
        run("a\n{{ raise_exception('roles must alternate') }}"),
        Err("chat template: roles must alternate (line 2)".to_owned())
    );
    assert!(run("{% if %}").unwrap_err().starts_with("chat template: "));
    assert!(run("{{ s | nofilter }}").unwrap_err().contains("nofilter"));
    assert!(run("{{ missing.x.y }}").is_err());
    assert!(
        run("{{ l | tojson(indent=99999999) }}")
            .unwrap_err()
            .contains("indent must be 0 to 16")
    );
    assert!(run("{{ l | tojson(colour=1) }}").is_err());
}

#[test]
fn bombs_end_with_an_error_soon() {
    let started = std::time::Instant::now();
    for bomb in [
        "{% for a in range(100000) %}{% for b in range(100000) %}x{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(99) %}{% set y %}{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | tojson }}",
        "{{ 'a' * 999999999999 }}",
        "{{ ([1] * 999999999999) | tojson }}",
        "{{ 'aaaaaaaaaa' * 90000000 }}",
        "{{ (s * 10000).replace('a', 'b' * 1000000) }}",
        "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% for a in [1] recursive %}{{ loop([a]) }}{% endfor %}",
        "{{ range(10000000000) | list | length }}",
        "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% set ns.x = {'a': ns.x} %}{% endfor %}{{ ns.x | tojson }}",
        "{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = ns.x + [i] %}{% endfor %}{{ ns.x | tojson }}",
    ] {
        let begun = std::time::Instant::now();
        assert!(run(bomb).is_err(), "{bomb}");
        println!("{:?} {bomb}", begun.elapsed());
    }
    assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    let deep = format!(
        "{}x{}",
        "{% if true %}".repeat(1000),
        "{% endif %}".repeat(1000)
    );
    assert!(run(&deep).is_err());
    assert!(
        run(&format!(
            "{{{{ {}1{} }}}}",
            "(".repeat(3000),
            ")".repeat(3000)
        ))
        .is_err()
    );
}

/// Chains that the compiler takes apart by recursion: `start`, `link` as often as asked, `end`.
const CHAINS: [(&str, &str, &str); 11] = [
    ("{{ x", ".a", " }}"),
    ("{{ x", "[0]", " }}"),
    ("{{ x", "()", " }}"),
    ("{{ 1", "+1", " }}"),
    ("{{ x", " or x", " }}"),
    ("{{ 'a'", "|upper", " }}"),
    ("{{ 1", " is number", " }}"),
    ("{{ ", "not ", "x }}"),
    ("{{ ", "-", "x }}"),
    ("{{ 1", " if 1 else 1", " }}"),
    ("{% if x %}", "{% elif 1 %}", "{% endif %}"),
];

fn chain((start, link, end): (&str, &str, &str), links: usize) -> String {
    format!("{start}{}{end}", link.repeat(links))
}

#[test]
fn a_template_that_would_overflow_its_compilers_stack_is_refused_in_a_sentence() {
    for parts in CHAINS {
        let source = chain(parts, 50_000);
        let refused = Jinja::new(&source, DATE, RENDERING)
            .unwrap_err()
            .to_string();
        assert_eq!(
            refused,
            format!(
                "chat template: it has {} words and signs; 16384 are allowed",
                symbols(&source)
            )
        );
    }
}

#[test]
fn the_longest_chains_that_are_allowed_compile_on_the_stack_there_is() {
    // Those with a sign are like those with a word, and seconds of work.
    for parts in CHAINS.into_iter().filter(|parts| parts.1 != "-") {
        let around = symbols(&chain(parts, 0));
        let each = symbols(&chain(parts, 1)) - around;
        let source = chain(parts, (MOST_SYMBOLS - around) / each);
        assert!(symbols(&source) > MOST_SYMBOLS - each, "{}", parts.1);
        Jinja::new(&source, DATE, RENDERING).unwrap();
    }
    prints(&chain(("{{ 1", "+1", " }}"), 5000), "5001");
    prints(&chain(("{{ ", "not ", "true }}"), 5000), "True");
}

#[test]
fn words_and_signs_are_counted() {
    for (source, count) in [
        ("", 0),
        (" \n", 0),
        ("two words", 2),
        ("a_b1 é", 2),
        ("{{ x.y }}", 7),
        ("--x", 3),
        ("日本", 1),
    ] {
        assert_eq!(symbols(source), count, "{source:?}");
    }
}

#[test]
fn too_much_work_is_the_fault_of_a_long_conversation_and_else_of_the_template() {
    let source = "{% for a in range(1000) %}{% for b in range(1000) %}x{% endfor %}{% endfor %}";
    let run = |given| {
        Jinja::new(source, DATE, RENDERING)
            .unwrap()
            .render(Value::from(()), given)
    };
    let work = "it does more work than a conversation of this size can need";
    assert!(matches!(run(64), Err(PromptError::Template(problem)) if problem.starts_with(work)));
    let refused = run(300_000).unwrap_err();
    assert_eq!(refused, PromptError::TooLong { bytes: 300_000 });
    assert_eq!(refused.param(), Some("input"));
}

#[test]
fn prompts_are_those_that_jinja2_makes() {
    use serde_json::Value as Json;
    let golden: Json = serde_json::from_str(include_str!("../testing/rendered.json")).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    for case in cases {
        let name = case[0].as_str().unwrap();
        let at =
            |list: &str, place: usize| golden[list][case[place].as_u64().unwrap() as usize].clone();
        let mut context = at("settings", 2);
        context["messages"] = at("conversations", 1);
        context["bos_token"] = "<|begin_of_text|>".into();
        context["eos_token"] = "<|eot_id|>".into();
        let (_, source, _) = crate::prompt::testing::shapes()
            .into_iter()
            .find(|shape| shape.0 == name)
            .unwrap();
        let jinja = Jinja::new(&source, DATE, RENDERING).unwrap();
        let text = match jinja.render(python::value(&context, &str::to_owned), 4096) {
            Ok(text) => text,
            Err(PromptError::Template(message)) => {
                format!("! {}", message.split(" (line").next().unwrap())
            }
            Err(other) => panic!("{other}"),
        };
        assert_eq!(text, case[3].as_str().unwrap(), "{name} {context}");
    }
    assert!(cases.len() >= 70);
}
