use proptest::prelude::*;

use super::*;

fn frames(chunks: &[&[u8]]) -> Vec<String> {
    let mut guard = Guard::new(1 << 20);
    let mut found = Vec::new();
    for chunk in chunks {
        guard
            .push(Bytes::copy_from_slice(chunk), |frame| {
                found.push(frame.as_str().to_owned());
            })
            .unwrap();
    }
    found.extend(guard.finish().map(|frame| frame.as_str().to_owned()));
    found
}

#[test]
fn a_byte_order_mark_is_stripped_once_even_when_split() {
    assert_eq!(
        frames(&[b"\xef", b"\xbb", b"\xbfdata: a\n\n"]),
        ["data: a\n\n"]
    );
    assert_eq!(
        frames(&[b"\xef\xbb\xbf\xef\xbb\xbfdata: a\n\n"]),
        ["\u{feff}data: a\n\n"]
    );
}

#[test]
fn every_line_end_becomes_lf() {
    for text in ["data: a\r\n\r\ndata: b\r\n\r\n", "data: a\r\rdata: b\r\r"] {
        assert_eq!(frames(&[text.as_bytes()]), ["data: a\n\n", "data: b\n\n"]);
    }
    assert_eq!(frames(&[b"data: a\r", b"\n\r", b"\n"]), ["data: a\n\n"]);
}

#[test]
fn a_bad_byte_is_replaced_and_counted_and_later_frames_still_come() {
    let mut guard = Guard::new(100);
    let mut found = Vec::new();
    guard
        .push(
            Bytes::from_static(b"data: \xff\xc3\n\ndata: ok\n\n"),
            |frame| {
                found.push(frame.as_str().to_owned());
            },
        )
        .unwrap();
    assert_eq!(found, ["data: \u{fffd}\u{fffd}\n\n", "data: ok\n\n"]);
    assert_eq!(guard.replaced(), 2);
}

#[test]
fn the_last_frame_needs_no_blank_line() {
    assert_eq!(
        frames(&[b"data: a\n\ndata: b"]),
        ["data: a\n\n", "data: b\n\n"]
    );
    assert_eq!(frames(&[b"\n\n\n"]), [""; 0]);
}

#[test]
fn the_limit_holds_for_finished_and_unfinished_frames() {
    let mut guard = Guard::new(10);
    assert_eq!(
        guard.push(Bytes::from_static(b"data: 12345\n\n"), |_| ()),
        Err(TooLarge { limit: 10 })
    );
    let mut guard = Guard::new(10);
    assert_eq!(
        guard.push(Bytes::from_static(b"data: 1234"), |_| ()),
        Ok(())
    );
    assert_eq!(
        guard.push(Bytes::from_static(b"5"), |_| ()),
        Err(TooLarge { limit: 10 })
    );
}

proptest! {
    #[test]
    fn any_split_gives_the_same_frames(
        text in "(\u{feff})?([a:é\r\n\u{1f600} ]|\r\n|data: x\n\n){0,60}",
        bad in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let mut bytes = text.into_bytes();
        for (at, byte) in bad {
            bytes.insert(at.index(bytes.len() + 1), byte);
        }
        let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        at.extend([0, bytes.len()]);
        at.sort_unstable();
        let chunks: Vec<&[u8]> = at.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
        prop_assert_eq!(frames(&chunks), frames(&[&bytes]));
    }
}
