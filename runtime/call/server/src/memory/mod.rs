//! Memory of calls and held arrays: arenas, results that stay, and the gathering of held arguments.

pub(super) mod arenas;
pub(super) mod budget;
pub(super) mod fetch_connection;
pub(super) mod gather;
pub(super) mod held_results;
pub(super) mod peers;
