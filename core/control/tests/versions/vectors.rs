//! What is on the wire and in the job table, as lines of text: the type, its bytes, and what they mean as JSON.

use std::fmt::Write;

use kumi_control::join::{JoinAnswer, JoinHello, JoinRefusal};
use kumi_control::message::{
    AbandonCause, ClientReply, ClientRequest, Command, Down, JobRecord, JobSpec, JobState,
    NodeCondition, Outcome, PartUse, PreparedRanks, RankStatus, Refusal, RefusalKind, Report,
    StateKind, TraceKind, Up, UsageBy, Verdict, WaitReason,
};
use kumi_sched::DqtState;
use kumi_verdict::WaitKind;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::samples::Samples;

/// Does something with a type that has a version.
pub trait Visit {
    /// Called with each of them and its name.
    fn visit<T>(&mut self, name: &'static str)
    where
        T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug;
}

/// All that is sent, and inner enums of which not all variants would occur otherwise.
pub fn visit_all(visit: &mut impl Visit) {
    visit.visit::<Down>("Down");
    visit.visit::<Up>("Up");
    visit.visit::<Command>("Command");
    visit.visit::<Report>("Report");
    visit.visit::<ClientRequest>("ClientRequest");
    visit.visit::<ClientReply>("ClientReply");
    visit.visit::<JoinHello>("JoinHello");
    visit.visit::<JoinAnswer>("JoinAnswer");
    visit.visit::<JoinRefusal>("JoinRefusal");
    visit.visit::<Refusal>("Refusal");
    visit.visit::<RefusalKind>("RefusalKind");
    visit.visit::<JobRecord>("JobRecord");
    visit.visit::<JobSpec>("JobSpec");
    visit.visit::<PreparedRanks>("PreparedRanks");
    visit.visit::<PartUse>("PartUse");
    visit.visit::<JobState>("JobState");
    visit.visit::<Outcome>("Outcome");
    visit.visit::<RankStatus>("RankStatus");
    visit.visit::<AbandonCause>("AbandonCause");
    visit.visit::<NodeCondition>("NodeCondition");
    visit.visit::<WaitReason>("WaitReason");
    visit.visit::<StateKind>("StateKind");
    visit.visit::<TraceKind>("TraceKind");
    visit.visit::<UsageBy>("UsageBy");
    visit.visit::<Verdict>("Verdict");
    visit.visit::<WaitKind>("WaitKind");
    visit.visit::<DqtState>("DqtState");
}

struct Writer {
    samples: Samples,
    text: String,
}

impl Visit for Writer {
    fn visit<T>(&mut self, name: &'static str)
    where
        T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
    {
        for value in self.samples.of::<T>() {
            let bytes = postcard::to_allocvec(&value).expect("it encodes");
            let meaning = serde_json::to_string(&value).expect("it is JSON");
            self.text.push_str(name);
            self.text.push(' ');
            for byte in bytes {
                write!(self.text, "{byte:02x}").expect("memory");
            }
            writeln!(self.text, " {meaning}").expect("memory");
        }
    }
}

/// The vectors of the code at hand.
pub fn vectors() -> String {
    let mut writer = Writer { samples: Samples::default(), text: String::new() };
    visit_all(&mut writer);
    let incomplete = writer.samples.incomplete();
    assert!(incomplete.is_empty(), "some variants of {incomplete:?} do not occur");
    writer.text
}
