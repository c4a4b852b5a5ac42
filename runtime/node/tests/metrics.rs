//! What daemons serve to Prometheus.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

use common::{Cluster, ModeName, PATIENCE, free_port, request, run, start};
use kumi_control::message::ClientRequest;
use kumi_node::config::ShowOthers;
use kumi_node::paths;
use kumi_sched::NodeId;

fn scrape(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: kumi\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head and a page");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    page.to_owned()
}

/// The value of the sample that is written so.
fn value(page: &str, sample: &str) -> Option<f64> {
    page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' ')?.parse().ok())
}

/// Every family is announced once before its samples, and every line is one of the three that there are.
fn check_format(page: &str) {
    let mut families = std::collections::BTreeSet::new();
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split(' ').next().unwrap().to_owned();
            assert!(families.insert(current.clone()), "{current} is announced twice");
        } else if !line.starts_with("# HELP ") {
            assert!(!current.is_empty(), "{line} comes before any announcement");
            assert!(line.starts_with(&current), "{line} is not of {current}");
            let (_, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().is_ok(), "{line}");
        }
    }
}

/// Where users do not see others' jobs, a page says of jobs what it says of all together.
#[tokio::test(flavor = "current_thread")]
async fn a_page_shows_no_more_of_jobs_than_users_see_of_others() {
    for (show, named) in [(ShowOthers::Jobs, true), (ShowOthers::Nothing, false)] {
        let mut cluster = Cluster::configured(1, ModeName::Os);
        let address = SocketAddr::new(
            cluster.config.nodes[0].address,
            free_port(cluster.config.nodes[0].address),
        );
        cluster.config.metrics = Some(address.to_string());
        cluster.config.privacy.show_others = show;
        cluster.config.save(cluster.path()).unwrap();
        let cluster = cluster.start().await;
        let mut wanted = request(&["/bin/sleep", "600"], 2);
        wanted.name = "secret".to_owned();
        let (job, _client) = start(&cluster, wanted).await;
        let end = Instant::now() + PATIENCE;
        let mut page = scrape(address);
        while value(&page, "kumi_jobs") != Some(1.0) {
            assert!(Instant::now() < end, "{page}");
            page = scrape(address);
        }
        check_format(&page);
        assert!(!page.contains("secret"), "{page}");
        assert_eq!(page.contains(&format!("job=\"{job}\"")), named, "{page}");
        let reserved = "kumi_job_memory_reserved_bytes{job=\"others\"}";
        assert_eq!(value(&page, reserved), (!named).then_some(0.0), "{page}");
        let together = "kumi_rank_sent_total{job=\"others\",rank=\"others\"}";
        assert_eq!(value(&page, together), (!named).then_some(0.0), "{page}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn a_node_shows_itself_its_jobs_and_their_ranks() {
    let mut cluster = Cluster::configured(2, ModeName::Os);
    // A port alone is enough: in a local cluster each node has an address of its own.
    let own = cluster.config.nodes[0].address;
    let port = free_port(own);
    cluster.config.metrics = Some(port.to_string());
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let mut wanted = request(&["/bin/sleep", "600"], 4);
    wanted.name = "a \"name\"\nkumi_jobs 99".to_owned();
    wanted.nodes = Some(2);
    wanted.resources.memory_per_rank = Some(32_000_000);
    let (job, _client) = start(&cluster, wanted).await;
    let end = Instant::now() + PATIENCE;
    for node in 0..2 {
        let address = SocketAddr::new(cluster.config.nodes[node].address, port);
        let mut page = scrape(address);
        while value(&page, "kumi_jobs") != Some(1.0) {
            assert!(Instant::now() < end, "{page}");
            page = scrape(address);
        }
        check_format(&page);
        let name = &cluster.config.name;
        let info = format!("kumi_node_info{{cluster=\"{name}\",node=\"{node}\",version=");
        assert!(page.contains(&info), "{page}");
        let named = format!(r#"kumi_job_info{{job="{job}",name="a \"name\"\nkumi_jobs 99"}}"#);
        assert_eq!(value(&page, &named), Some(1.0), "{page}");
        assert_eq!(value(&page, &format!("kumi_job_ranks{{job=\"{job}\"}}")), Some(2.0));
        let of_job = |family: &str| value(&page, &format!("kumi_job_{family}{{job=\"{job}\"}}"));
        let reserved = [of_job("processors"), of_job("memory_reserved_bytes")];
        let processors = value(&page, "kumi_processors").unwrap();
        assert_eq!(reserved, [Some(processors.min(2.0)), Some(2.0 * 32_000_000.0)], "{page}");
        assert!(of_job("processor_seconds_total").is_none_or(|used| used >= 0.0), "{page}");
        assert!(of_job("memory_bytes").is_none_or(|used| used > 0.0), "{page}");
        assert!(value(&page, "kumi_daemon_memory_bytes") > Some(1e6), "{page}");
        assert!(value(&page, "kumi_daemon_processor_seconds_total") > Some(0.0), "{page}");
        let rank = 2 * node;
        let of_rank = format!("kumi_rank_data_out_total{{job=\"{job}\",rank=\"{rank}\"}}");
        assert_eq!(value(&page, &of_rank), Some(0.0), "{page}");
        assert_eq!(value(&page, "kumi_switch_seconds_count"), Some(0.0), "{page}");
        assert!(value(&page, "kumi_control_messages_total") > Some(0.0), "{page}");
    }
}

#[tokio::test(flavor = "current_thread")]
async fn the_head_shows_jobs_nodes_and_what_it_refused() {
    let mut cluster = Cluster::configured(2, ModeName::Gang);
    let own = cluster.config.head.ip();
    let port = free_port(own);
    cluster.config.head_metrics = Some(port.to_string());
    cluster.config.save(cluster.path()).unwrap();
    let cluster = cluster.start().await;
    let address = SocketAddr::new(own, port);
    let said = run(&cluster, request(&["/bin/echo", "twelve bytes"], 1)).await;
    assert_eq!(said.out, "twelve bytes\n");
    let (_, _client) = start(&cluster, request(&["/bin/sleep", "600"], 4)).await;
    let mut client = cluster.client().await;
    let too_many = Box::new(request(&["/bin/true"], 100_000));
    let refusal = client.ask(&ClientRequest::Submit(too_many)).await.unwrap_err();
    assert!(refusal.to_string().contains("100000 ranks"), "{refusal}");
    // A stranger.
    drop(TcpStream::connect(cluster.config.head).unwrap());
    let end = Instant::now() + PATIENCE;
    let refused = "kumi_head_refused_total{reason=\"link refused\"}";
    let mut page = scrape(address);
    // Nodes may have been refused too, while the head started.
    while value(&page, refused).is_none_or(|count| count < 1.0)
        || value(&page, "kumi_head_submissions_refused_total") != Some(1.0)
    {
        assert!(Instant::now() < end, "{page}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        page = scrape(address);
    }
    check_format(&page);
    for (sample, right) in [
        ("kumi_head_jobs{state=\"running\"}", 1.0),
        ("kumi_head_jobs{state=\"ended\"}", 1.0),
        ("kumi_head_jobs{state=\"queued\"}", 0.0),
        ("kumi_head_job_ranks{state=\"running\"}", 4.0),
        ("kumi_head_nodes{state=\"up\"}", 2.0),
        ("kumi_head_nodes{state=\"down\"}", 0.0),
        ("kumi_head_slice_seconds", 0.001),
        ("kumi_head_records_unwritten", 0.0),
        ("kumi_head_state_refused", 0.0),
        ("kumi_head_spool_failures_total", 0.0),
    ] {
        assert_eq!(value(&page, sample), Some(right), "{sample}\n{page}");
    }
    assert!(value(&page, "kumi_head_daemon_memory_bytes") > Some(1e6), "{page}");
    assert!(value(&page, "kumi_head_daemon_processor_seconds_total") > Some(0.0), "{page}");
    assert!(value(&page, "kumi_head_spool_bytes") >= Some(13.0), "{page}");
    assert!(value(&page, "kumi_head_timetable_generation") >= Some(2.0), "{page}");
    assert!(value(&page, "kumi_head_clients") >= Some(2.0), "{page}");
}

#[tokio::test(flavor = "current_thread")]
async fn it_is_off_unless_asked_for_and_a_port_in_use_is_named() {
    let mut cluster = Cluster::configured(1, ModeName::Os).start().await;
    drop(cluster.nodes[0].take().map(|mut child| {
        Cluster::signal(&child, nix::sys::signal::Signal::SIGTERM);
        child.wait()
    }));
    // Somebody is there already; the command line says where, whatever the file says.
    let taken = TcpListener::bind((cluster.config.nodes[0].address, 0)).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let log = paths::node_log(cluster.path(), NodeId(0));
    let ran = cluster.command(&["node", "--node", "0", "--metrics", &address], &log).status();
    assert_eq!(ran.unwrap().code(), Some(73));
    let said = cluster.logs();
    assert!(
        said.contains(&format!("{address}, where figures are to be served, is in use")),
        "{said}"
    );
    let ran = cluster.command(&["node", "--node", "0", "--metrics", "here"], &log).status();
    assert_eq!(ran.unwrap().code(), Some(65));
}
