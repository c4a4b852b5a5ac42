//! Completion queues.
#[derive(Debug)]
pub struct CompletionQueue {}
