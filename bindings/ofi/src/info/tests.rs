use super::*;

fn asked(caps: u64) -> Hints {
    Hints { caps, named_so: true, ..Hints::default() }
}

fn completions(msg_order: u64) -> (fi_tx_attr, fi_rx_attr) {
    let tx = fi_tx_attr { op_flags: FI_COMPLETION, msg_order, ..Default::default() };
    (
        tx,
        fi_rx_attr {
            op_flags: FI_COMPLETION,
            msg_order: msg_order & FI_ORDER_SAS,
            ..Default::default()
        },
    )
}

/// As Open MPI 4.1.4 asks for its messages (recorded).
fn open_mpi_4() -> Hints {
    let (tx, rx) = completions(FI_ORDER_SAS);
    Hints {
        tx: Some(tx),
        rx: Some(rx),
        ep: Some(fi_ep_attr { type_: FI_EP_RDM, ..Default::default() }),
        domain: Some(fi_domain_attr {
            threading: FI_THREAD_DOMAIN,
            resource_mgmt: FI_RM_ENABLED,
            av_type: FI_AV_MAP,
            cq_data_size: 4,
            ..Default::default()
        }),
        ..asked(FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV)
    }
}

/// As Open MPI 5.0.11 asks for memory of others, at its second try (recorded).
fn open_mpi_5_memory() -> Hints {
    let (mut tx, rx) = completions(0);
    tx.op_flags |= FI_DELIVERY_COMPLETE;
    tx.iov_limit = 1;
    Hints {
        tx: Some(tx),
        rx: Some(fi_rx_attr { iov_limit: 1, ..rx }),
        ep: Some(fi_ep_attr { type_: FI_EP_RDM, ..Default::default() }),
        domain: Some(fi_domain_attr {
            threading: FI_THREAD_DOMAIN,
            mr_mode: 0x270,
            ..Default::default()
        }),
        ..asked(FI_RMA | FI_ATOMIC)
    }
}

/// As MPICH 5.0.2 asks when it has seen the provider (recorded).
fn mpich_5() -> Hints {
    let accumulates =
        FI_ORDER_ATOMIC_RAR | FI_ORDER_ATOMIC_RAW | FI_ORDER_ATOMIC_WAR | FI_ORDER_ATOMIC_WAW;
    let (mut tx, rx) = completions(FI_ORDER_SAS | accumulates);
    tx.op_flags |= FI_DELIVERY_COMPLETE;
    Hints {
        tx: Some(tx),
        rx: Some(rx),
        ep: Some(fi_ep_attr {
            type_: FI_EP_RDM,
            mem_tag_format: 0x00c0_0000_7fff_ffff,
            ..Default::default()
        }),
        domain: Some(fi_domain_attr {
            threading: FI_THREAD_DOMAIN,
            control_progress: FI_PROGRESS_MANUAL,
            data_progress: FI_PROGRESS_MANUAL,
            resource_mgmt: FI_RM_ENABLED,
            av_type: FI_AV_TABLE,
            mr_mode: FI_MR_ENDPOINT as i32,
            cq_data_size: 4,
            ..Default::default()
        }),
        ..asked(0x0b18_0000_0001_3f1e)
    }
}

#[test]
fn open_mpi_4_gets_tagged_messages_both_ways() {
    let offer = offer(abi::version(1, 5), Some(&open_mpi_4())).unwrap();
    assert_eq!(offer.caps & (KINDS | OF_MEMORY), FI_TAGGED);
    assert_eq!(offer.caps & OF_MESSAGES, OF_MESSAGES);
    assert_ne!(offer.caps & FI_DIRECTED_RECV, 0);
    assert_eq!(offer.domain.threading, FI_THREAD_DOMAIN);
    assert_eq!((offer.domain.av_type, offer.domain.mr_mode), (FI_AV_MAP, 0));
    assert_eq!((offer.tx.op_flags, offer.rx.op_flags), (FI_COMPLETION, FI_COMPLETION));
    assert_ne!(offer.tx.msg_order & FI_ORDER_SAS, 0);
    assert_eq!(offer.domain.cq_data_size, 8);
}

#[test]
fn open_mpi_5_is_refused_memory_of_devices_and_gets_the_rest() {
    let mut hints = open_mpi_4();
    hints.caps |= FI_MSG | FI_HMEM;
    hints.domain.as_mut().unwrap().mr_mode = (FI_MR_ALLOCATED | FI_MR_HMEM) as i32;
    assert_eq!(offer(abi::version(1, 18), Some(&hints)).err(), Some(FI_ENODATA));
    hints.caps &= !FI_HMEM;
    let messages = offer(abi::version(1, 18), Some(&hints)).unwrap();
    assert_eq!(messages.caps & KINDS, FI_TAGGED | FI_MSG);
    let memory = offer(abi::version(1, 18), Some(&open_mpi_5_memory())).unwrap();
    assert_eq!(memory.caps & (KINDS | OF_MEMORY), FI_RMA | FI_ATOMIC | OF_MEMORY);
    assert_eq!(memory.domain.mr_mode, 0, "memory needs no endpoint");
}

#[test]
fn mpich_5_asks_first_for_anything_and_then_gets_what_it_asks() {
    let any = offer(abi::version(2, 5), None).unwrap();
    assert_eq!(any.caps, CAPS);
    assert_eq!((any.domain.threading, any.domain.mr_mode), (FI_THREAD_SAFE, 0));
    assert_eq!((any.domain.data_progress, any.ep.type_), (FI_PROGRESS_AUTO, FI_EP_RDM));

    let given = offer(abi::version(2, 5), Some(&mpich_5())).unwrap();
    assert_eq!(given.domain.threading, FI_THREAD_DOMAIN);
    assert_eq!(given.domain.data_progress, FI_PROGRESS_MANUAL);
    assert_eq!(given.domain.av_type, FI_AV_TABLE);
    assert_eq!(given.domain.mr_mode, 0);
    assert_eq!(given.tx.op_flags, FI_DELIVERY_COMPLETE | FI_COMPLETION);
    assert_eq!(given.ep.mem_tag_format, mpich_5().ep.unwrap().mem_tag_format);
    assert_eq!(given.caps & OF_MEMORY, OF_MEMORY);
}

#[test]
fn intel_mpi_gets_memory_and_buffers_for_several_messages() {
    let given =
        offer(abi::version(1, 9), Some(&asked(FI_TAGGED | FI_RMA | FI_MULTI_RECV))).unwrap();
    assert_ne!(given.rx.caps & FI_MULTI_RECV, 0);
    assert_ne!(given.tx.caps & FI_RMA, 0);
}

#[test]
fn one_direction_is_kept() {
    let given = offer(abi::version(1, 17), Some(&asked(FI_MSG | FI_SEND))).unwrap();
    assert_eq!(given.caps & (OF_MESSAGES | OF_MEMORY), FI_SEND);
    assert_eq!(given.rx.caps & OF_MESSAGES, 0);
}

#[test]
fn registration_of_old_programs() {
    let mode = |version, mr_mode: u64| {
        let domain = fi_domain_attr { mr_mode: mr_mode as i32, ..Default::default() };
        offer(version, Some(&Hints { domain: Some(domain), ..asked(0) })).unwrap().domain.mr_mode
    };
    assert_eq!(mode(abi::version(1, 4), u64::from(FI_MR_BASIC)), FI_MR_BASIC as i32);
    assert_eq!(mode(abi::version(1, 4), u64::from(FI_MR_UNSPEC)), FI_MR_SCALABLE as i32);
    assert_eq!(mode(abi::version(1, 5), u64::from(FI_MR_BASIC)), FI_MR_BASIC as i32);
    assert_eq!(mode(abi::version(1, 5), FI_MR_LOCAL | FI_MR_PROV_KEY), 0);
}

#[test]
fn what_is_not_there_is_refused() {
    let version = abi::version(1, 17);
    let refused = |hints: Hints| offer(version, Some(&hints)).err() == Some(FI_ENODATA);
    for caps in
        [FI_HMEM, FI_COLLECTIVE, FI_MULTICAST, FI_FENCE, FI_TRIGGER, FI_NAMED_RX_CTX, 1 << 40]
    {
        assert!(refused(asked(FI_MSG | caps)), "{caps:x}");
    }
    assert!(refused(Hints { named_so: false, ..asked(0) }));
    assert!(refused(Hints { addr_format: FI_SOCKADDR_IN6, ..asked(0) }));
    let ep = |ep| Hints { ep: Some(ep), ..asked(0) };
    assert!(refused(ep(fi_ep_attr { type_: FI_EP_MSG, ..Default::default() })));
    assert!(refused(ep(fi_ep_attr { max_msg_size: MOST_BYTES + 1, ..Default::default() })));
    assert!(refused(ep(fi_ep_attr { rx_ctx_cnt: usize::MAX, ..Default::default() })));
    assert!(refused(ep(fi_ep_attr {
        max_order_waw_size: ORDERED_BYTES + 1,
        ..Default::default()
    })));
    let tx = |tx| Hints { tx: Some(tx), ..asked(0) };
    assert!(refused(tx(fi_tx_attr { inject_size: INJECT_BYTES + 1, ..Default::default() })));
    assert!(refused(tx(fi_tx_attr { op_flags: FI_COMMIT_COMPLETE, ..Default::default() })));
    assert!(refused(tx(fi_tx_attr { msg_order: FI_ORDER_SAW, ..Default::default() })));
    assert!(refused(tx(fi_tx_attr { comp_order: FI_ORDER_SAS, ..Default::default() })));
    assert!(refused(tx(fi_tx_attr { iov_limit: 5, ..Default::default() })));
    let domain = |domain| Hints { domain: Some(domain), ..asked(0) };
    assert!(refused(domain(fi_domain_attr { cq_data_size: 9, ..Default::default() })));
    assert!(refused(domain(fi_domain_attr { threading: 9, ..Default::default() })));
    assert!(refused(domain(fi_domain_attr { caps: FI_SHARED_AV, ..Default::default() })));
}
