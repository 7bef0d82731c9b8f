//! The events inside an item: content parts of messages and reasoning, arguments of calls. What upstream leaves out
//! (llama-server sends no parts for reasoning and no `function_call_arguments.done`) is filled in here, in order.

use protocol::{EventKind, ItemKind, Object, ToolKind, event};
use serde_json::{Value, json};

use super::{
    lifecycle::{Lifecycle, Part, PartKind, is_refusal, part_text},
    out::Out,
    peek::{Fields, Peek},
};
use crate::translate::restore::Unwrap;

/// Sends one content event of an open item, and before it what must have come before it.
///
/// `fill` completes the parts of a server known to leave fields out.
pub(super) fn forward(
    item: &mut Lifecycle,
    kind: EventKind,
    name: &str,
    data: &str,
    peek: &Peek<'_>,
    fill: bool,
    out: &mut Out,
) {
    match kind {
        EventKind::ArgumentsDelta | EventKind::ArgumentsDone => {
            return arguments(item, kind, name, data, peek, out);
        }
        EventKind::PartAdded => item.parts.push(Part::new(kind_of(item, data))),
        EventKind::PartDone
        | EventKind::TextDelta
        | EventKind::TextDone
        | EventKind::RefusalDelta
        | EventKind::RefusalDone
        | EventKind::ReasoningDelta
        | EventKind::ReasoningDone
        | EventKind::AnnotationAdded
            if item.parts.is_empty() =>
        {
            let part = match kind {
                EventKind::RefusalDelta | EventKind::RefusalDone => PartKind::Refusal,
                EventKind::PartDone => kind_of(item, data),
                _ => PartKind::of(item.kind),
            };
            begin_part(item, part, out);
        }
        _ => {}
    }
    let mut logprobs = false;
    let mut content_index = None;
    // Codex ignores a summary event without its index. A server that sends none has one summary.
    let is_summary = matches!(
        kind,
        EventKind::SummaryPartAdded
            | EventKind::SummaryPartDone
            | EventKind::SummaryDelta
            | EventKind::SummaryDone
    );
    let summary_index = is_summary.then(|| peek.summary_index().unwrap_or(0));
    if let Some(index) = summary_index {
        summary(item, kind, index, data, peek, out);
    }
    if !is_summary && let Some(current) = item.parts.len().checked_sub(1) {
        // Some servers count deltas in `content_index`: an index nobody announced means the current part.
        let index = peek
            .content_index()
            .filter(|index| *index < current && kind != EventKind::PartAdded)
            .unwrap_or(current);
        content_index = Some(index);
        match kind {
            EventKind::TextDelta | EventKind::RefusalDelta | EventKind::ReasoningDelta => {
                if let Some(delta) = peek.delta() {
                    item.parts[index].text.push_str(&delta);
                }
                logprobs = fill && kind == EventKind::TextDelta;
            }
            EventKind::TextDone | EventKind::RefusalDone | EventKind::ReasoningDone => {
                item.parts[index].end_text(data);
                logprobs = fill && kind == EventKind::TextDone;
            }
            EventKind::PartDone => {
                if !item.parts[index].text_ended {
                    let text = std::mem::take(&mut item.parts[index].text);
                    end_text(item, index, &text, out);
                    item.parts[index].text = text;
                }
                item.parts[index].ended = true;
            }
            EventKind::PartAdded if fill => {
                if let Some(event) = with_complete_part(data, item, index) {
                    return out.event(event);
                }
            }
            _ => {}
        }
    }
    let fields = Fields {
        item_id: Some(&item.id),
        output_index: Some(item.index),
        content_index,
        summary_index,
        logprobs,
        ..Fields::default()
    };
    out.text(name, data, peek, fields);
}

/// Sends what an item still owes before its `output_item.done`.
pub(super) fn finish(item: &mut Lifecycle, out: &mut Out) {
    let Some(finished) = item.item.take() else {
        return;
    };
    match item.kind {
        ItemKind::Message | ItemKind::Reasoning => {
            let count = finished
                .get("content")
                .and_then(Value::as_array)
                .map_or(0, Vec::len);
            for index in 0..count.max(item.parts.len()) {
                let (text, is_refusal) = match part_text(&finished, index) {
                    Some((text, is_refusal)) => (text.to_owned(), is_refusal),
                    None if index < item.parts.len() => (item.parts[index].text.clone(), false),
                    // Not a text part; its end says all.
                    None => continue,
                };
                let kind = match is_refusal {
                    true => PartKind::Refusal,
                    false => PartKind::of(item.kind),
                };
                finish_part(item, index, kind, &text, out);
            }
            for place in 0..item.summary.len() {
                finish_summary(item, place, out);
            }
        }
        ItemKind::FunctionCall => finish_call(item, &finished, out),
        _ => {}
    }
    item.item = Some(finished);
}

/// `kind` is that of a part that was not streamed.
fn finish_part(item: &mut Lifecycle, index: usize, kind: PartKind, text: &str, out: &mut Out) {
    while item.parts.len() <= index {
        begin_part(item, kind, out);
        if item.parts.len() > index && !text.is_empty() {
            let place = item.place(index);
            out.event(match kind {
                PartKind::Reasoning => event::reasoning_delta(place, text),
                PartKind::Refusal => event::refusal_delta(place, text),
                PartKind::Text | PartKind::Summary => event::text_delta(place, text),
            });
        }
    }
    if !item.parts[index].text_ended {
        end_text(item, index, text, out);
    }
    if !item.parts[index].ended {
        let part = item.parts[index].kind.value(text);
        out.event(event::part(EventKind::PartDone, item.place(index), part));
        item.parts[index].ended = true;
    }
}

fn begin_part(item: &mut Lifecycle, kind: PartKind, out: &mut Out) {
    let index = item.parts.len();
    item.parts.push(Part::new(kind));
    let part = kind.value("");
    out.event(event::part(EventKind::PartAdded, item.place(index), part));
}

fn end_text(item: &mut Lifecycle, index: usize, text: &str, out: &mut Out) {
    let place = item.place(index);
    out.event(match item.parts[index].kind {
        PartKind::Reasoning => event::reasoning_done(place, text),
        PartKind::Refusal => event::refusal_done(place, text),
        PartKind::Text | PartKind::Summary => event::text_done(place, text),
    });
    item.parts[index].text_ended = true;
}

/// The kind of the part that `data` announces or ends.
fn kind_of(item: &Lifecycle, data: &str) -> PartKind {
    let event: Option<Object> = serde_json::from_str(data).ok();
    let part = event.as_ref().and_then(|event| event.get("part"));
    match part.and_then(Value::as_object) {
        Some(part) if is_refusal(part) => PartKind::Refusal,
        _ => PartKind::of(item.kind),
    }
}

/// Notes what an event says of a reasoning item's summary. A text that ends without its event is ended before its part.
fn summary(
    item: &mut Lifecycle,
    kind: EventKind,
    index: u64,
    data: &str,
    peek: &Peek<'_>,
    out: &mut Out,
) {
    let place = match item.summary.iter().rposition(|(at, _)| *at == index) {
        Some(place) => place,
        None => {
            item.summary.push((index, Part::new(PartKind::Summary)));
            item.summary.len() - 1
        }
    };
    match kind {
        EventKind::SummaryDelta => {
            let delta = peek.delta().unwrap_or_default();
            item.summary[place].1.text.push_str(&delta);
        }
        EventKind::SummaryDone => item.summary[place].1.end_text(data),
        EventKind::SummaryPartDone => {
            end_summary_text(item, place, out);
            item.summary[place].1.ended = true;
        }
        _ => {}
    }
}

fn end_summary_text(item: &mut Lifecycle, place: usize, out: &mut Out) {
    let (index, part) = &mut item.summary[place];
    if !part.text_ended {
        out.event(event::summary_done(
            &item.id, item.index, *index, &part.text,
        ));
        part.text_ended = true;
    }
}

fn finish_summary(item: &mut Lifecycle, place: usize, out: &mut Out) {
    end_summary_text(item, place, out);
    let (index, part) = &mut item.summary[place];
    if !part.ended {
        let value = part.value();
        out.event(event::summary_part_done(
            &item.id, item.index, *index, value,
        ));
        part.ended = true;
    }
}

/// The announcement of a part with `annotations` and `logprobs`, or `None` when it has them.
fn with_complete_part(data: &str, item: &Lifecycle, index: usize) -> Option<Object> {
    let mut event: Object = serde_json::from_str(data).ok()?;
    let part = event.get_mut("part")?.as_object_mut()?;
    if part.get("type")?.as_str()? != "output_text" {
        return None;
    }
    let before = part.len();
    for list in ["annotations", "logprobs"] {
        part.entry(list).or_insert_with(|| json!([]));
    }
    if part.len() == before {
        return None;
    }
    event.insert("item_id".into(), item.id.as_str().into());
    event.insert("output_index".into(), item.index.into());
    event.insert("content_index".into(), index.into());
    Some(event)
}

fn arguments(
    item: &mut Lifecycle,
    kind: EventKind,
    name: &str,
    data: &str,
    peek: &Peek<'_>,
    out: &mut Out,
) {
    let fields = Fields {
        item_id: Some(&item.id),
        output_index: Some(item.index),
        ..Fields::default()
    };
    if kind == EventKind::ArgumentsDelta {
        let delta = peek.delta().unwrap_or_default();
        item.arguments.push_str(&delta);
        if item.has_plain_arguments() {
            item.arguments_sent |= !delta.is_empty();
            out.text(name, data, peek, fields);
        } else if let Some(unwrap) = &mut item.unwrap {
            let text = unwrap.push(&delta);
            if !text.is_empty() {
                out.event(event::custom_input_delta(&item.id, item.index, &text));
            }
        }
        return;
    }
    let Ok(mut event) = serde_json::from_str::<Object>(data) else {
        return;
    };
    if let Some(arguments) = event.get("arguments").and_then(Value::as_str) {
        arguments.clone_into(&mut item.arguments);
    }
    if !item.has_plain_arguments() {
        return;
    }
    item.arguments_ended = true;
    let declared = item.tool.as_ref().map(|tool| tool.id.name.as_str());
    match (declared, event.get("name").and_then(Value::as_str)) {
        (Some(declared), Some(came)) if declared != came => {
            event.insert("name".into(), declared.into());
            event.insert("item_id".into(), item.id.as_str().into());
            event.insert("output_index".into(), item.index.into());
            out.event(event);
        }
        _ => out.text(name, data, peek, fields),
    }
}

fn finish_call(item: &mut Lifecycle, finished: &Object, out: &mut Out) {
    match item.tool.as_ref().map(|tool| tool.id.kind) {
        None | Some(ToolKind::Function) => {
            let arguments = protocol::object::str_or_empty(finished, "arguments");
            if !item.arguments_sent && !arguments.is_empty() {
                out.event(event::arguments_delta(&item.id, item.index, arguments));
            }
            if !item.arguments_ended {
                let name = protocol::object::str_or_empty(finished, "name");
                out.event(event::arguments_done(&item.id, item.index, name, arguments));
            }
        }
        Some(ToolKind::Custom) => {
            let input = protocol::object::str_or_empty(finished, "input");
            let given = item.unwrap.as_ref().map_or(0, Unwrap::given);
            let rest = input.get(given..).unwrap_or_default();
            if !rest.is_empty() {
                out.event(event::custom_input_delta(&item.id, item.index, rest));
            }
            out.event(event::custom_input_done(&item.id, item.index, input));
        }
        Some(ToolKind::ToolSearch) => {}
    }
}
