//! Tests of tokens and certificates at one head.

use super::*;
use kumi_control::message::Revocation;
use kumi_small_disk::{fill, on_a_small_disk};

const DAY: u64 = 86_400_000;

fn cluster(dir: &Path) -> ClusterConfig {
    tls::create(dir, "lab", 1).unwrap();
    let node = |number: u32| {
        format!("[[nodes]]\nname = \"n{number}\"\naddress = \"192.0.2.{number}\"\nport = 7701\n")
    };
    let head = "name = \"lab\"\nkind = \"hosts\"\nhead = \"192.0.2.1:7700\"\n";
    let text = [head.to_owned(), node(1), node(2)].concat();
    fs::write(paths::config(dir), text).unwrap();
    ClusterConfig::load(dir).unwrap()
}

fn revocations(dir: &Path) -> Revocations {
    Credentials::load(dir, tls::Identity::Head).unwrap().revocations().clone()
}

fn open(dir: &Path, revocations: &Revocations) -> Result<Joining, Failure> {
    Joining::open(dir, (revocations, &Certainty::for_ever()), None)
}

fn opened(dir: &Path) -> Result<Joining, Failure> {
    let empty = tempfile::tempdir().unwrap();
    tls::create(empty.path(), "lab", 1).unwrap();
    open(dir, &revocations(empty.path()))
}

fn certify(joining: &Joining, config: &ClusterConfig, hello: &JoinHello) -> JoinAnswer {
    joining.certify(config, hello).map(|certified| certified.joined)
}

fn issued(joining: &Joining, config: &ClusterConfig) -> JoinToken {
    match joining.issue(config, NodeId(1), DAY) {
        ClientReply::JoinToken { token, .. } => JoinToken::parse(&token).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn hello(key: &tls::JoiningKey, secret: JoinSecret) -> JoinHello {
    JoinHello {
        version: JOIN_VERSION,
        control: CONTROL_VERSION,
        secret,
        public_key: key.public().to_vec(),
        proof: key.prove(&secret).unwrap(),
    }
}

#[test]
fn a_token_is_used_once_also_by_the_next_head() {
    let (dir, machine, other) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = cluster(dir.path());
    let joining = opened(dir.path()).unwrap();
    let token = issued(&joining, &config);
    assert_eq!(
        (token.cluster.as_str(), &token.head[..]),
        ("lab", &["192.0.2.1:7700".to_owned()][..])
    );
    let kept = fs::read_to_string(paths::tokens(dir.path())).unwrap();
    assert!(!kept.contains(&paths::hex(&token.secret.0)), "{kept}");
    let key = tls::JoiningKey::of(machine.path()).unwrap();
    let forged = JoinHello { proof: vec![1; 70], ..hello(&key, token.secret) };
    assert_eq!(certify(&joining, &config, &forged), Err(JoinRefusal::NoProof));
    let joined = certify(&joining, &config, &hello(&key, token.secret)).unwrap();
    assert_eq!(joined.node, NodeId(1));
    let next = opened(dir.path()).unwrap();
    assert!(certify(&next, &config, &hello(&key, token.secret)).is_ok(), "the same machine again");
    let stranger = tls::JoiningKey::of(other.path()).unwrap();
    let again = certify(&next, &config, &hello(&stranger, token.secret));
    assert_eq!(again, Err(JoinRefusal::Used));
}

/// All that the node had by now is revoked.
fn revoke(list: &Revocations) {
    let until_us = wall_ms() * 1_000 + 999;
    list.add_unwritten(&[Revocation { node: NodeId(1), until_us }]);
    while wall_ms() * 1_000 <= until_us {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_revoked_node_gets_no_certificate_with_a_token_from_before() {
    for used in [false, true] {
        let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let config = cluster(dir.path());
        let list = revocations(dir.path());
        let joining = open(dir.path(), &list).unwrap();
        let token = issued(&joining, &config);
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let hello = hello(&key, token.secret);
        if used {
            certify(&joining, &config, &hello).unwrap();
        }
        revoke(&list);
        assert_eq!(certify(&joining, &config, &hello), Err(JoinRefusal::Unknown));
        let bytes = frame::encode(&hello, HELLO_LIMIT).unwrap();
        assert!(joining.check(&bytes[4..]).is_err(), "a stranger");
        let hash = paths::hex(&token.secret.hash());
        let kept = || fs::read_to_string(paths::tokens(dir.path())).unwrap();
        assert!(kept().contains(&hash));
        joining.forget_revoked().unwrap();
        assert!(!kept().contains(&hash), "{}", kept());
        // The next head finds neither, and a token that is made then counts.
        list.keep().unwrap();
        let next = open(dir.path(), &revocations(dir.path())).unwrap();
        assert_eq!(certify(&next, &config, &hello), Err(JoinRefusal::Unknown));
        let later = issued(&next, &config);
        let again =
            JoinHello { proof: key.prove(&later.secret).unwrap(), secret: later.secret, ..hello };
        assert!(certify(&next, &config, &again).is_ok());
    }
}

#[test]
fn a_token_that_a_full_disk_keeps_is_not_believed() {
    let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = cluster(dir.path());
    let list = revocations(dir.path());
    let joining = open(dir.path(), &list).unwrap();
    let token = issued(&joining, &config);
    // As a file of an earlier head, which has no time of issue.
    let file = paths::tokens(dir.path());
    let kept = fs::read_to_string(&file).unwrap();
    let lines = kept.lines().filter(|line| !line.starts_with("issued_ms"));
    fs::write(&file, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let key = tls::JoiningKey::of(machine.path()).unwrap();
    let hello = hello(&key, token.secret);
    let next = open(dir.path(), &list).unwrap();
    assert!(certify(&next, &config, &hello).is_ok());
    revoke(&list);
    fs::create_dir(dir.path().join("head.tokens.new")).unwrap();
    assert!(next.forget_revoked().is_err());
    for joining in [next, open(dir.path(), &list).unwrap()] {
        assert_eq!(certify(&joining, &config, &hello), Err(JoinRefusal::Unknown));
    }
}

#[test]
fn a_revocation_while_the_certificate_is_signed_wins() {
    let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = cluster(dir.path());
    let joining = opened(dir.path()).unwrap();
    let token = issued(&joining, &config);
    let key = tls::JoiningKey::of(machine.path()).unwrap();
    let ask = |revoked: bool| {
        let (answer, mut answered) = oneshot::channel();
        let hello = hello(&key, token.secret);
        let signed = joining.answer(&config, JoinRequest { hello, answer });
        assert!(signed.certified.is_ok(), "the writer did not know of it");
        signed.send(|node, _| revoked && node == NodeId(1));
        answered.try_recv().unwrap().map(|joined| joined.node)
    };
    assert_eq!(ask(false), Ok(NodeId(1)));
    assert_eq!(ask(true), Err(JoinRefusal::Unknown));
}

#[test]
fn what_cannot_be_kept_or_signed_uses_no_token() {
    let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = cluster(dir.path());
    let joining = opened(dir.path()).unwrap();
    let token = issued(&joining, &config);
    let key = tls::JoiningKey::of(machine.path()).unwrap();
    let hello = hello(&key, token.secret);
    // A folder where the draft belongs: as a disk that takes nothing.
    let draft = dir.path().join("head.tokens.new");
    fs::create_dir(&draft).unwrap();
    assert!(matches!(certify(&joining, &config, &hello), Err(JoinRefusal::Failed(_))));
    let ClientReply::Refused(refused) = joining.issue(&config, NodeId(1), DAY) else { panic!() };
    assert_eq!(refused.kind, RefusalKind::NoResources);
    fs::remove_dir(&draft).unwrap();
    let without = ClusterConfig { nodes: config.nodes[..1].to_vec(), ..config.clone() };
    assert_eq!(certify(&joining, &without, &hello), Err(JoinRefusal::Unknown), "it was removed");
    let (authority, aside) = (dir.path().join("tls/ca.key"), dir.path().join("aside"));
    fs::rename(&authority, &aside).unwrap();
    assert_eq!(certify(&joining, &config, &hello), Err(JoinRefusal::NoAuthority));
    let ClientReply::Refused(refused) = joining.issue(&config, NodeId(1), DAY) else { panic!() };
    assert_eq!(refused.kind, RefusalKind::NotFound);
    fs::rename(&aside, &authority).unwrap();
    assert!(certify(&joining, &config, &hello).is_ok());
}

#[test]
fn a_full_disk_makes_no_token_and_uses_none() {
    on_a_small_disk(1 << 20, |disk| {
        let machine = tempfile::tempdir().unwrap();
        let config = cluster(disk);
        let joining = opened(disk).unwrap();
        let token = issued(&joining, &config);
        let key = tls::JoiningKey::of(machine.path()).unwrap();
        let hello = hello(&key, token.secret);
        let before = fs::read_to_string(paths::tokens(disk)).unwrap();
        fill(disk);
        let reply = joining.issue(&config, NodeId(1), DAY);
        let ClientReply::Refused(refused) = reply else { panic!("{reply:?}") };
        let says = ["no token is made", "No space left", "make room"];
        assert!(says.iter().all(|text| refused.message.contains(text)), "{}", refused.message);
        assert!(matches!(certify(&joining, &config, &hello), Err(JoinRefusal::Failed(_))));
        assert_eq!(fs::read_to_string(paths::tokens(disk)).unwrap(), before);
        fs::remove_file(disk.join("others")).unwrap();
        assert!(certify(&joining, &config, &hello).is_ok(), "it still counts");
    });
}

#[test]
fn another_file_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for text in ["token = 3", "[[token]]\nnode = 1\nhash = \"ab\"\nuntil_ms = 1", "\u{0}"] {
        fs::write(paths::tokens(dir.path()), text).unwrap();
        let error = opened(dir.path()).unwrap_err();
        assert_eq!(error.code, ExitCode::BadConfig, "{text}");
    }
}

#[test]
fn strangers_say_nothing_that_counts() {
    let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = cluster(dir.path());
    let joining = opened(dir.path()).unwrap();
    let token = issued(&joining, &config);
    let key = tls::JoiningKey::of(machine.path()).unwrap();
    let good = hello(&key, token.secret);
    let check = |hello: &JoinHello| {
        let bytes = frame::encode(hello, HELLO_LIMIT).unwrap();
        joining.check(&bytes[4..]).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(check(&good), Ok(()));
    let wrong = check(&JoinHello { secret: JoinSecret([0; 16]), ..good.clone() });
    assert!(wrong.unwrap_err().contains("does not know this token"));
    for other in [JoinHello { version: 2, ..good.clone() }, JoinHello { control: 1, ..good }] {
        assert!(check(&other).unwrap_err().contains("version"), "{other:?}");
    }
    assert!(joining.check(&[]).is_err() && joining.check(&[1, 15, 7]).is_err());
}

/// Tokens that heads share are in no file of this host, and whoever is not sure to lead refuses nobody for good.
#[test]
fn a_head_of_several_has_no_list_and_knows_best_only_while_it_leads() {
    let (dir, machine) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = cluster(dir.path());
    let list = revocations(dir.path());
    let key = tls::JoiningKey::of(machine.path()).unwrap();
    let secret = JoinSecret([5; 16]);
    let hello = hello(&key, secret);
    let bytes = frame::encode(&hello, HELLO_LIMIT).unwrap();
    let refused = |certainty: &Certainty| {
        let none = JoinTokens::default();
        let joining = Joining::open(dir.path(), (&list, certainty), Some(&none)).unwrap();
        match joining.check(&bytes[4..]) {
            Err(LinkError::Join(refused)) => refused,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(refused(&Certainty::for_ever()), JoinRefusal::Unknown);
    assert_eq!(refused(&Certainty::default()), JoinRefusal::NotNow);
    let mut tokens = JoinTokens::default();
    tokens.issue(NodeId(1), &secret, wall_ms(), DAY);
    let leads = (&list, &Certainty::for_ever());
    let joining = Joining::open(dir.path(), leads, Some(&tokens)).unwrap();
    let (answer, mut answered) = oneshot::channel();
    let signed = joining.answer_later(&config, JoinRequest { hello, answer });
    assert_eq!(signed.certified.unwrap().joined.node, NodeId(1));
    assert!(answered.try_recv().is_err(), "it is answered later");
    revoke(&list);
    joining.forget_revoked().unwrap();
    let file = paths::tokens(dir.path());
    assert!(!file.exists());
    joining.set_aside();
    fs::write(&file, "").unwrap();
    joining.set_aside();
    assert!(!file.exists() && dir.path().join("head.tokens.old").exists());
}
