use super::*;

fn asked(caps: u64) -> Hints {
    Hints { caps, named_so: true, ..Hints::default() }
}

/// As Open MPI 4.1.4 asks for its messages.
fn open_mpi_4() -> Hints {
    Hints {
        tx: Some(fi_tx_attr {
            op_flags: FI_COMPLETION,
            msg_order: FI_ORDER_SAS,
            ..Default::default()
        }),
        rx: Some(fi_rx_attr {
            op_flags: FI_COMPLETION,
            msg_order: FI_ORDER_SAS,
            ..Default::default()
        }),
        ep: Some(fi_ep_attr { type_: FI_EP_RDM, ..Default::default() }),
        domain: Some(fi_domain_attr {
            threading: FI_THREAD_DOMAIN,
            av_type: FI_AV_MAP,
            resource_mgmt: FI_RM_ENABLED,
            cq_data_size: 4,
            ..Default::default()
        }),
        ..asked(FI_TAGGED | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_DIRECTED_RECV)
    }
}

fn mpich_5() -> Hints {
    Hints {
        tx: Some(fi_tx_attr {
            op_flags: FI_DELIVERY_COMPLETE | FI_COMPLETION,
            msg_order: FI_ORDER_SAS,
            ..Default::default()
        }),
        domain: Some(fi_domain_attr {
            threading: FI_THREAD_DOMAIN,
            control_progress: FI_PROGRESS_MANUAL,
            data_progress: FI_PROGRESS_MANUAL,
            av_type: FI_AV_TABLE,
            mr_mode: (FI_MR_ENDPOINT | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR) as i32,
            ..Default::default()
        }),
        ..asked(FI_MSG | FI_MULTI_RECV | FI_RMA | FI_TAGGED | FI_DIRECTED_RECV)
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
    assert_eq!(offer(abi::version(1, 18), Some(&hints)).err(), Some(FI_ENODATA));
    hints.caps &= !FI_HMEM;
    let offer = offer(abi::version(1, 18), Some(&hints)).unwrap();
    assert_eq!(offer.caps & KINDS, FI_TAGGED | FI_MSG);
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
    assert_eq!(given.domain.mr_mode, FI_MR_ENDPOINT as i32);
    assert_ne!(given.tx.op_flags & FI_DELIVERY_COMPLETE, 0);
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
