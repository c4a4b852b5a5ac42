//! Election of the leader.

use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use kumi_leadership::{Claim, LeaderKey, Nanos, Step, may_claim, next_step};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::api::Pair;
use super::http::Gateway;
use super::leadership::Leadership;
use super::session::Session;
use super::{Etcd, EtcdError, api, clock, random};

/// How often a follower checks whether there is a leader.
const LOOK: Duration = Duration::from_millis(500);

/// The value of the leader's key.
#[derive(Debug, Serialize, Deserialize)]
struct Leader {
    /// The leader's address for those who look for it.
    address: String,
    name: String,
    /// Random identity of the process.
    id: u64,
}

/// A process that wants to lead.
pub struct Candidate {
    settings: Rc<Etcd>,
    leadership: Rc<Leadership>,
    gateway: Gateway,
    name: String,
    id: u64,
    /// Its latest attempt.
    claim: Option<Claim>,
    /// Until when it leaves leadership to others, and why.
    rest: Option<(Instant, EtcdError)>,
    /// Since when it has found nobody to lead.
    free_since: Option<Nanos>,
}

impl Candidate {
    /// A candidate that has not asked etcd yet.
    ///
    /// # Errors
    /// The settings are invalid, or the system has no random number.
    pub fn new(settings: &Etcd, name: &str) -> Result<Candidate, EtcdError> {
        let settings = Rc::new(settings.clone());
        let leadership = Rc::new(Leadership::default());
        let gateway = Gateway::new(&settings, &leadership)?;
        let id = random::identity()?;
        Ok(Candidate {
            settings,
            leadership,
            gateway,
            name: name.to_owned(),
            id,
            claim: None,
            rest: None,
            free_since: None,
        })
    }

    /// What is known of the leader.
    pub fn leadership(&self) -> Rc<Leadership> {
        Rc::clone(&self.leadership)
    }

    /// Makes it leave leadership to others for this long, after it led and could not serve.
    pub fn rest(&mut self, time: Duration, why: EtcdError) {
        self.rest = Some((Instant::now() + time, why));
    }

    /// Waits until this one leads. Goes on trying while etcd does not answer.
    pub async fn win(&mut self) -> Session {
        loop {
            match self.attempt().await {
                Ok(Some(session)) => {
                    // Errors before this time are no reason to refuse calls.
                    self.leadership.figures.runs();
                    return session;
                }
                Ok(None) => self.leadership.figures.runs(),
                Err(error) => {
                    if self.leadership.figures.trouble().is_none() {
                        tracing::error!(%error, "nobody can be found to lead");
                    }
                    self.leadership.follow("");
                    self.leadership.figures.stuck(error.to_string());
                }
            }
            sleep(LOOK).await;
        }
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.settings.prefix)
    }

    async fn attempt(&mut self) -> Result<Option<Session>, EtcdError> {
        let (leader, numbers) = (self.key("leader"), self.key("numbers"));
        let leads = api::get(&mut self.gateway, &leader).await?;
        // Not earlier: if this one leads already, that number is in use.
        let numbered = api::get(&mut self.gateway, &numbers).await?;
        let found = leads.map(|pair| known_leader(&leader, &pair)).transpose()?;
        let own = |address: &str| self.settings.exclusive && address == self.settings.advertise;
        let key = found.as_ref().map(|(key, _, address)| LeaderKey {
            maker: if own(address) { self.id } else { key.maker },
            lease: key.lease,
        });
        if key.is_some() {
            self.free_since = None;
        }
        match (next_step(self.id, self.claim, key), found) {
            (Step::Follow, found) => {
                let address = found.map(|(.., address)| address).unwrap_or_default();
                self.leadership.follow(&address);
                Ok(None)
            }
            (Step::EndEarlier(lease), _) => {
                self.leadership.follow("");
                api::revoke(&mut self.gateway, lease).await?;
                Ok(None)
            }
            // The answer to the claim was lost.
            (Step::Lead(claim), found) => {
                let number = number(numbered.map(|pair| pair.value), &numbers)?;
                let created = found.map_or(0, |(_, created, _)| created);
                self.lead(claim, created, number).map(Some)
            }
            (Step::Claim, _) => self.claim(numbered).await,
        }
    }

    /// Nobody leads: makes the leader's key.
    async fn claim(&mut self, numbered: Option<Pair>) -> Result<Option<Session>, EtcdError> {
        if let Some((_, why)) = self.rest.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return Err(why.clone());
        }
        self.rest = None;
        self.leadership.follow("");
        let free_since = *self.free_since.get_or_insert_with(clock::now);
        let lease = clock::nanos(self.settings.lease);
        if !may_claim(self.is_preferred().await?, lease, free_since, clock::now()) {
            return Ok(None);
        }
        let (leader, numbers) = (self.key("leader"), self.key("numbers"));
        let was = numbered.as_ref().map_or(0, |pair| pair.changed);
        let number = after(number(numbered.map(|pair| pair.value), &numbers)?);
        let asked = clock::now();
        let lease = api::grant(&mut self.gateway, self.settings.lease.as_secs()).await?;
        let claim = Claim { lease, asked };
        self.claim = Some(claim);
        let address = self.settings.advertise.clone();
        let value = Leader { address, name: self.name.clone(), id: self.id };
        // Numbers and texts always serialise.
        let value = serde_json::to_vec(&value).unwrap_or_default();
        let number_text = number.to_string();
        let claimed = api::claim(
            &mut self.gateway,
            (&leader, &value, lease),
            (&numbers, was, number_text.as_bytes()),
        )
        .await?;
        match claimed {
            Some(created) => self.lead(claim, created, number).map(Some),
            None => {
                self.claim = None;
                api::revoke(&mut self.gateway, lease).await?;
                Ok(None)
            }
        }
    }

    /// Whether it need not leave leadership to others.
    async fn is_preferred(&mut self) -> Result<bool, EtcdError> {
        let Some(name) = self.settings.preferred else { return Ok(true) };
        let key = self.key(name);
        let list = api::get(&mut self.gateway, &key).await?;
        let own = self.settings.advertise.as_bytes();
        Ok(list.is_none_or(|pair| pair.value.split(|&byte| byte == b'\n').any(|it| it == own)))
    }

    fn lead(&mut self, claim: Claim, created: i64, number: u64) -> Result<Session, EtcdError> {
        self.claim = None;
        let guard = (self.key("leader"), created);
        let (settings, leadership) = (&self.settings, &self.leadership);
        Session::new(settings, leadership, guard, (claim.lease, claim.asked), number)
    }
}

/// Who leads by the key `key`, in which revision it was made, and the leader's address.
fn known_leader(key: &str, pair: &Pair) -> Result<(LeaderKey, i64, String), EtcdError> {
    let found: Leader =
        serde_json::from_slice(&pair.value).map_err(|_| EtcdError::Content(key.to_owned()))?;
    Ok((LeaderKey { maker: found.id, lease: pair.lease }, pair.created, found.address))
}

/// The stored number of the last leader.
fn number(value: Option<Vec<u8>>, key: &str) -> Result<u64, EtcdError> {
    let Some(value) = value else { return Ok(0) };
    let text = String::from_utf8(value).ok();
    text.and_then(|text| text.parse().ok()).ok_or_else(|| EtcdError::Content(key.to_owned()))
}

/// The number for the next leader. It is higher than all earlier ones, even if clocks differ. It is also
/// higher than those of an etcd that was emptied, because servers may remember its tickets.
fn after(before: u64) -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let seconds = since.map_or(0, |since| since.as_secs()).min(u64::from(u32::MAX) - 1);
    before.saturating_add(1).max(seconds)
}
