//! Names and numbers of users, as the machine's name service has them.
//!
//! The service may ask a directory in the network and block for long. So it is asked from other threads, few at a time, and
//! its answers are kept for a minute. While it does not answer, older answers serve.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_control::message::{Refusal, RefusalKind, User};
use kumi_control::user::{Account, UserMatch};
use nix::unistd;
use tokio::sync::Semaphore;

use crate::client::refusal;

/// How long an answer is believed without asking again.
const AGE: Duration = Duration::from_secs(60);
/// Most answers that are kept.
const MOST_KEPT: usize = 4096;
/// Most threads that wait for the service.
const MOST_ASKING: usize = 8;
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// A question to the name service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Query {
    /// The name of a number.
    Name(u32),
    /// Number and groups of a name.
    Entry(String),
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Answer {
    Name(Option<String>),
    Entry(Option<(u32, Vec<u32>)>),
}

impl Query {
    /// Asks, however long that takes.
    fn ask(&self) -> nix::Result<Answer> {
        match self {
            Self::Name(uid) => unistd::User::from_uid((*uid).into())
                .map(|found| Answer::Name(found.map(|user| user.name))),
            Self::Entry(name) => {
                let Some(found) = unistd::User::from_name(name)? else {
                    return Ok(Answer::Entry(None));
                };
                let name = CString::new(name.as_str()).map_err(|_| nix::Error::EINVAL)?;
                let groups = unistd::getgrouplist(&name, found.gid)?;
                let groups = groups.into_iter().map(unistd::Gid::as_raw).collect();
                Ok(Answer::Entry(Some((found.uid.as_raw(), groups))))
            }
        }
    }
}

/// Answers by question, with the times at which they came.
#[derive(Debug, Default)]
struct Cache(BTreeMap<Query, (Instant, Answer)>);

impl Cache {
    fn get(&self, query: &Query, oldest: Option<Instant>) -> Option<Answer> {
        let (at, answer) = self.0.get(query)?;
        oldest.is_none_or(|oldest| *at >= oldest).then(|| answer.clone())
    }

    /// Keeps an answer; the oldest makes room.
    fn put(&mut self, query: Query, now: Instant, answer: Answer) {
        if self.0.len() >= MOST_KEPT
            && !self.0.contains_key(&query)
            && let Some(oldest) =
                self.0.iter().min_by_key(|(_, (at, _))| *at).map(|(query, _)| query.clone())
        {
            self.0.remove(&oldest);
        }
        self.0.insert(query, (now, answer));
    }
}

/// The machine's name service.
#[derive(Clone, Debug)]
pub struct NameService {
    cache: Rc<RefCell<Cache>>,
    asking: Arc<Semaphore>,
    patience: Duration,
}

impl Default for NameService {
    fn default() -> Self {
        let asking = Arc::new(Semaphore::new(MOST_ASKING));
        Self { cache: Rc::default(), asking, patience: PATIENCE }
    }
}

impl NameService {
    /// The name of a user on this machine; none if it knows none.
    ///
    /// # Errors
    /// The service does not answer.
    pub async fn name_of(&self, uid: u32) -> Result<Option<String>, Refusal> {
        match self.answer(Query::Name(uid)).await? {
            Answer::Name(name) => Ok(name),
            Answer::Entry(_) => Ok(None),
        }
    }

    /// What this machine has for a user.
    ///
    /// # Errors
    /// The service does not answer.
    pub async fn account(&self, user: &User) -> Result<Account, Refusal> {
        let name = self.name_of(user.uid).await?;
        let mut account = Account { name, ..Account::default() };
        if !user.name.is_empty()
            && let Answer::Entry(Some((uid, groups))) =
                self.answer(Query::Entry(user.name.clone())).await?
        {
            (account.uid, account.groups) = (Some(uid), groups);
        }
        Ok(account)
    }

    /// Checks that a user who comes from `there` is the same on this machine, `here`.
    ///
    /// # Errors
    /// It is another one, or the service does not answer.
    pub async fn check(&self, user: &User, there: &str, here: &str) -> Result<UserMatch, Refusal> {
        user.check_account(&self.account(user).await?, there, here)
    }

    async fn answer(&self, query: Query) -> Result<Answer, Refusal> {
        let fresh = self.cache.borrow().get(&query, Instant::now().checked_sub(AGE));
        if let Some(answer) = fresh {
            return Ok(answer);
        }
        match tokio::time::timeout(self.patience, self.ask(query.clone())).await {
            Ok(Ok(answer)) => {
                self.cache.borrow_mut().put(query, Instant::now(), answer.clone());
                Ok(answer)
            }
            Ok(Err(reason)) => self.old_answer(&query, &reason),
            Err(_) => self.old_answer(&query, "it takes too long"),
        }
    }

    /// Asks in another thread. One that hangs keeps its permit, so that few threads can hang.
    async fn ask(&self, query: Query) -> Result<Answer, String> {
        let permit = Arc::clone(&self.asking).acquire_owned().await;
        let permit = permit.map_err(|error| error.to_string())?;
        let asked = tokio::task::spawn_blocking(move || {
            let answer = query.ask();
            drop(permit);
            answer
        });
        let answer = asked.await.map_err(|error| error.to_string())?;
        answer.map_err(|error| error.to_string())
    }

    fn old_answer(&self, query: &Query, reason: &str) -> Result<Answer, Refusal> {
        if let Some(answer) = self.cache.borrow().get(query, None) {
            tracing::warn!(reason, "the name service does not answer; its last answer serves");
            return Ok(answer);
        }
        let message = format!(
            "the name service of the machine does not say who the user is: {reason}; try again, and see `getent passwd` there"
        );
        Err(refusal(RefusalKind::NoResources, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn root_is_known_and_a_stranger_is_not() {
        let names = NameService::default();
        assert_eq!(names.name_of(0).await.unwrap().as_deref(), Some("root"));
        assert_eq!(names.name_of(3_999_999_999).await.unwrap(), None);
        let root = User { uid: 0, gid: 0, name: "root".into() };
        let here = names.check(&root, "there", "here").await;
        assert_eq!(here.unwrap(), UserMatch::Known);
        let other = User { uid: 3_999_999_999, gid: 0, name: "root".into() };
        let message = names.check(&other, "there", "here").await.unwrap_err().message;
        assert!(message.contains("root has number 3999999999 there and 0 here"), "{message}");
    }

    #[test]
    fn answers_age_and_their_number_is_bounded() {
        let mut cache = Cache::default();
        let (start, name) = (Instant::now(), Answer::Name(None));
        let after = |seconds| start + Duration::from_secs(seconds);
        for number in 0..=u32::try_from(MOST_KEPT).unwrap() {
            cache.put(Query::Name(number), after(number.into()), name.clone());
        }
        assert_eq!(cache.0.len(), MOST_KEPT);
        assert_eq!(cache.get(&Query::Name(0), None), None, "the oldest is gone");
        assert_eq!(cache.get(&Query::Name(1), Some(after(2))), None, "too old");
        assert_eq!(cache.get(&Query::Name(1), None), Some(name));
    }

    /// Threads that hang are few, and whoever is known already is served.
    #[tokio::test(flavor = "current_thread")]
    async fn a_service_that_hangs_keeps_nobody_who_is_known() {
        let mut names = NameService::default();
        let root = names.name_of(0).await.unwrap();
        let hanging = Arc::clone(&names.asking).acquire_many_owned(8).await.unwrap();
        names.patience = Duration::from_millis(1);
        let past = Instant::now().checked_sub(2 * AGE).unwrap();
        names.cache.borrow_mut().0.get_mut(&Query::Name(0)).unwrap().0 = past;
        assert_eq!(names.name_of(0).await.unwrap(), root);
        let refused = names.name_of(1).await.unwrap_err();
        assert!(refused.message.contains("takes too long"), "{}", refused.message);
        drop(hanging);
        names.patience = PATIENCE;
        assert!(names.name_of(1).await.is_ok());
    }
}
