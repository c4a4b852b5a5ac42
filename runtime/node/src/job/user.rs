//! Who the user of a job is on this machine, and whether its jobs may run here.

use kumi_control::message::{Refusal, RefusalKind, User};
use kumi_control::user::{UserMatch, check_root_jobs};

use super::NodeServices;
use crate::client::refusal;

/// Where a job's user comes from, in a sentence.
const THERE: &str = "where the job was submitted";

impl NodeServices {
    /// The user with the name that this machine has for it; none if it knows neither number nor name.
    ///
    /// # Errors
    /// The daemon may not run jobs of this user, or this machine means another one by its number or name.
    pub(super) async fn identify(&self, user: &User) -> Result<User, Refusal> {
        let own = nix::unistd::geteuid();
        if !own.is_root() && user.uid != own.as_raw() {
            let message = format!(
                "the node's daemon runs as user {own} and cannot run jobs of user {}; run it as root",
                user.uid
            );
            return Err(refusal(RefusalKind::NotPermitted, message));
        }
        if own.is_root() {
            check_root_jobs(user, self.root_jobs)?;
        }
        let here = format!("on node {}", self.node);
        let name = match self.names.check(user, THERE, &here).await? {
            UserMatch::Known => user.name.clone(),
            UserMatch::Stranger => String::new(),
        };
        Ok(User { name, ..user.clone() })
    }
}
