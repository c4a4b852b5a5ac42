//! Pages of jobs, and loads, as users see them.

use super::*;
use kumi_control::head::ShowOthers;
use kumi_control::message::{JobLoad, LoadSample, MOST_PAGED, SliceBegin, StateKind};

/// A head that finds this many queued jobs of Alice in its table; every tenth is called `tenth`.
fn with_queue(count: u64) -> Test {
    let mut seed = Test::without_nodes(1);
    let (_, actions) = seed.submit(request(1, 1, None));
    let record = actions.iter().find_map(|action| match action {
        HeadAction::Persist(record) => Some((**record).clone()),
        _ => None,
    });
    let record = record.expect("a record");
    let records = (1..=count).map(|number| {
        let mut record = record.clone();
        (record.spec.job, record.spec.request.token) = (JobId(number), number.into());
        if number % 10 == 0 {
            record.spec.request.name = "Tenth".into();
        }
        record
    });
    let head = Head::new(config(1), records.collect(), [1; 32]).expect("a policy");
    let mut test = Test { head, now: MS, records: Vec::new() };
    test.event(HeadEvent::Timeout);
    test
}

fn page(test: &Test, user: &User, query: &JobsQuery) -> JobsPage {
    test.head.page(user, query)
}

fn numbers(page: &JobsPage) -> Vec<u64> {
    page.list.records.iter().map(|record| record.spec.job.0).collect()
}

#[test]
fn pages_have_all_of_ten_thousand_jobs_once() {
    let test = with_queue(10_000);
    let (mut seen, mut before) = (Vec::new(), None);
    loop {
        let query = JobsQuery { live: true, before, limit: MOST_PAGED, ..JobsQuery::default() };
        let page = page(&test, &ALICE, &query);
        assert!(page.list.records.len() <= MOST_PAGED);
        assert_eq!(page.list.waiting.len(), page.list.records.len(), "each has its reason");
        before = page.list.records.first().map(|record| record.spec.job);
        seen.extend(numbers(&page).into_iter().rev());
        if !page.more {
            break;
        }
    }
    assert_eq!(seen, (1..=10_000).rev().collect::<Vec<u64>>());
    assert_eq!(test.head.queued(), 10_000);
}

#[test]
fn a_page_has_what_is_looked_for() {
    let test = with_queue(100);
    let text = |text: &str| JobsQuery { text: text.into(), limit: 3, ..JobsQuery::default() };
    let found = page(&test, &ALICE, &text("tenTH"));
    assert_eq!((numbers(&found), found.more), (vec![80, 90, 100], true));
    assert!(found.list.records[0].spec.request.env.is_empty(), "environments are no part of it");
    assert_eq!(numbers(&page(&test, &ALICE, &text("no such job"))), [] as [u64; 0]);
    let huge = JobsQuery { limit: usize::MAX, ..JobsQuery::default() };
    assert_eq!(page(&test, &ALICE, &huge).list.records.len(), 100);
}

#[test]
fn a_page_has_what_all_filters_let_through() {
    let mut test = Test::wide(2, 1);
    let runs = test.running(1, 1);
    let (waits, _) = test.submit(request(2, 2, Some(2)));
    let of_bob = JobRequest { name: "Other".into(), ..request(3, 2, Some(2)) };
    test.ask(&BOB, ClientRequest::Submit(Box::new(of_bob)));
    let of_bob = JobId(waits.0 + 1);
    let found = |query: JobsQuery| {
        let query = JobsQuery { limit: 9, ..query };
        test.head.page(&ALICE, &query).list.records.iter().map(|it| it.spec.job).collect::<Vec<_>>()
    };
    let none = JobsQuery::default;
    assert_eq!(found(JobsQuery { states: vec![StateKind::Running], ..none() }), [runs]);
    let states = vec![StateKind::Queued, StateKind::Running];
    assert_eq!(found(JobsQuery { states, ..none() }), [runs, waits, of_bob]);
    assert_eq!(found(JobsQuery { user: Some("1001".into()), ..none() }), [of_bob]);
    assert_eq!(found(JobsQuery { user: Some("100".into()), ..none() }), []);
    assert_eq!(found(JobsQuery { name: Some("oTHE".into()), ..none() }), [of_bob]);
    let node = test.head.records().find(|it| it.spec.job == runs).expect("it").spec.layout[0].node;
    assert_eq!(found(JobsQuery { node: Some(node), ..none() }), [runs]);
    let both = JobsQuery { node: Some(node), states: vec![StateKind::Queued], ..none() };
    assert_eq!(found(both), []);
}

#[test]
fn large_jobs_fill_a_page_sooner_and_none_is_left_out() {
    let mut test = Test::without_nodes(1);
    for token in 1..=10 {
        let args = vec!["true".into(), "x".repeat(200 << 10)];
        test.submit(JobRequest { args, ..request(token, 1, None) });
    }
    let (mut seen, mut before, mut pages) = (0, None, 0);
    loop {
        let query = JobsQuery { before, ..JobsQuery::first_page(true) };
        let page = page(&test, &ALICE, &query);
        let bytes =
            postcard::to_allocvec(&ClientReply::Jobs(page.clone())).expect("it encodes").len();
        assert!(bytes < 1 << 20, "an answer fits a frame");
        (seen, pages) = (seen + page.list.records.len(), pages + 1);
        before = page.list.records.first().map(|record| record.spec.job);
        if !page.more {
            break;
        }
    }
    assert_eq!((seen, pages), (10, 4));
}

#[test]
fn a_page_hides_what_a_list_hides() {
    for (show_others, seen, named) in
        [(ShowOthers::All, 1, 1), (ShowOthers::Jobs, 1, 0), (ShowOthers::Nothing, 0, 0)]
    {
        let mut test = Test::attached(HeadConfig { show_others, ..config(1) });
        let job = test.running(1, 1);
        let all = JobsQuery { limit: 9, ..JobsQuery::default() };
        assert_eq!(page(&test, &BOB, &all).list.records.len(), seen);
        assert_eq!(test.head.job_for(&BOB, job).map_or(0, |list| list.records.len()), seen);
        let by_name = JobsQuery { text: "job".into(), ..all };
        assert_eq!(page(&test, &BOB, &by_name).list.records.len(), named);
        assert_eq!(page(&test, &ALICE, &by_name).list.records.len(), 1);
        assert_eq!(test.head.may_read(&BOB, job).unwrap_err().kind, RefusalKind::NotPermitted);
        assert_eq!(test.head.may_read(&ALICE, job), Ok(()));
    }
    let test = Test::new(1);
    assert_eq!(test.head.may_read(&OWNER, JobId(9)).unwrap_err().kind, RefusalKind::NoSuchJob);
    assert_eq!(test.head.job_for(&OWNER, JobId(9)), None);
}

#[test]
fn loads_of_hidden_jobs_are_hidden() {
    let mut test = Test::attached(HeadConfig { show_others: ShowOthers::Nothing, ..config(1) });
    let job = test.running(1, 1);
    assert_eq!(test.head.running().count(), 1);
    for (number, (user, seen)) in (1..).zip([(&ALICE, 1), (&BOB, 0), (&OWNER, 1)]) {
        let actions = test.ask(user, ClientRequest::SampleLoad { slices: true });
        let command = Command::SampleLoad { request: number, slices: true };
        assert_eq!(commands(&actions), [(&set([0]), &command)]);
        let load = LoadSample {
            jobs: vec![JobLoad { job, first: 0, turns: 4, busy: vec![2] }],
            slices: vec![SliceBegin { at: ClusterTime(1), jobs: vec![job] }],
            ..LoadSample::default()
        };
        let sample = NodeSample {
            node: NodeId(0),
            machine_clock: String::new(),
            ranks: Vec::new(),
            channels: Vec::new(),
            traces: Vec::new(),
            load: Some(load),
            switching: SwitchSample::default(),
            control_messages: MessageCounts::default(),
            refused: Vec::new(),
        };
        let actions = test.report(Report::Samples { request: number, nodes: vec![sample] });
        let shown = actions.iter().find_map(|action| match action {
            HeadAction::ToClient(_, ClientReply::Samples(samples)) => samples[0].load.clone(),
            _ => None,
        });
        let shown = shown.expect("answered");
        assert_eq!((shown.jobs.len(), shown.slices[0].jobs.len()), (seen, seen));
    }
}
