//! Pages on their way to or from the disk.

#[derive(Debug, Default)]
pub(super) struct Warm {}

impl Warm {
    pub(super) fn is_loading(&self, _id: u64) -> bool {
        false
    }

    pub(super) fn take_back(&mut self) -> bool {
        false
    }
}
