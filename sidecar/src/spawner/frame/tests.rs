use proptest::prelude::*;

use super::*;

fn os_bytes() -> impl Strategy<Value = OsBytes> {
    prop::collection::vec(1u8..=255, 0..20)
}

fn program() -> impl Strategy<Value = Program> {
    prop_oneof![
        prop::collection::vec(os_bytes(), 0..5).prop_map(Program::Argv),
        os_bytes().prop_map(Program::Shell),
        Just(Program::Worker)
    ]
}

fn spawn() -> impl Strategy<Value = Spawn> {
    let env = prop::collection::vec((os_bytes(), os_bytes()), 0..5);
    let size = any::<(u16, u16)>().prop_map(|(columns, rows)| Size { columns, rows });
    let options = (any::<Option<u32>>(), prop::option::of(size), any::<bool>());
    (any::<u64>(), "[a-z]{0,8}", program(), os_bytes(), "\\PC{0,8}", options, env).prop_map(
        |(id, exec_id, program, cwd, user, (umask, terminal, prompt), env)| Spawn {
            id,
            exec_id,
            program,
            cwd,
            user,
            umask,
            terminal,
            env,
            prompt,
        },
    )
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![
        spawn().prop_map(Order::Spawn),
        (any::<u64>(), any::<u32>(), any::<bool>()).prop_map(|(id, signal, tree)| Order::Signal {
            id,
            signal,
            tree
        }),
        any::<u64>().prop_map(|id| Order::Kill { id }),
        (any::<(u64, u64, u32)>(), "[a-z]{0,8}", prop::collection::vec(any::<u32>(), 0..5)).prop_map(
            |((id, shell, signal), command_id, spared)| {
                Order::Abandon(Abandon { id, shell, signal, command_id, spared })
            }
        ),
        any::<u64>().prop_map(|nonce| Order::Ping { nonce }),
        any::<u64>().prop_map(|nonce| Order::Disk { nonce }),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    let id = any::<u64>();
    prop_oneof![
        ("\\PC{0,20}", any::<u64>(), any::<u64>()).prop_map(|(kernel, target_found_us, entered_us)| {
            Report::Ready { kernel, target_found_us, entered_us }
        }),
        ("[a-z_]{0,20}", "\\PC{0,20}").prop_map(|(code, detail)| Report::Failed { code, detail }),
        (id, any::<u32>(), any::<u64>()).prop_map(|(id, pid, began_us)| Report::Spawned {
            id,
            pid,
            began_us
        }),
        (id, prop::sample::select(&REFUSALS), "\\PC{0,20}")
            .prop_map(|(id, refusal, detail)| { Report::Refused { id, refusal, detail } }),
        (id, any::<i32>()).prop_map(|(id, code)| Report::Ended { id, ending: Ending::Exited(code) }),
        (id, any::<u32>()).prop_map(|(id, signal)| Report::Ended { id, ending: Ending::Signalled(signal) }),
        (id, any::<u32>()).prop_map(|(id, left)| Report::Swept { id, left }),
        id.prop_map(|nonce| Report::Pong { nonce }),
        (any::<[u64; 3]>(), any::<bool>()).prop_map(|(numbers, is_own)| {
            let [nonce, used_bytes, in_memory_bytes] = numbers;
            Report::Disk { nonce, disk: Disk { used_bytes, in_memory_bytes, is_own } }
        }),
    ]
}

proptest! {
    #[test]
    fn an_order_survives(order in order()) {
        let frame = order.encode();
        prop_assert_eq!(frame_length(&frame), Ok(Some(frame.len())));
        prop_assert_eq!(Order::decode(&frame[HEADER_BYTES..]), Ok(order));
    }

    #[test]
    fn a_report_survives(report in report()) {
        let frame = report.encode();
        prop_assert_eq!(frame_length(&frame), Ok(Some(frame.len())));
        prop_assert_eq!(Report::decode(&frame[HEADER_BYTES..]), Ok(report));
    }

    #[test]
    fn a_truncated_or_longer_body_is_refused(order in order(), extra in any::<u8>()) {
        let mut body = order.encode().split_off(HEADER_BYTES);
        prop_assert_eq!(Order::decode(&body[..body.len() - 1]), Err(Malformed));
        body.push(extra);
        prop_assert_eq!(Order::decode(&body), Err(Malformed));
    }

    #[test]
    fn any_bytes_are_refused_or_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_decoding(&bytes);
    }

    #[test]
    fn a_damaged_frame_is_refused_or_round_trips(order in order(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut body = order.encode().split_off(HEADER_BYTES);
        let at = at.index(body.len());
        body[at] = byte;
        check_decoding(&body);
    }
}

#[test]
fn refusals_are_listed_in_the_order_of_their_numbers() {
    for (number, refusal) in REFUSALS.iter().enumerate() {
        assert_eq!(*refusal as usize, number);
    }
}

#[test]
fn a_length_over_the_bound_is_refused_before_its_body_is_read() {
    assert_eq!(frame_length(&u32::MAX.to_le_bytes()), Err(Malformed));
    assert_eq!(frame_length(&[1, 0, 0]), Ok(None));
}

#[test]
fn a_nul_in_an_argument_is_refused() {
    let mut body = Order::Spawn(Spawn {
        id: 1,
        exec_id: "e".into(),
        program: Program::Shell(b"a?b".to_vec()),
        cwd: Vec::new(),
        user: String::new(),
        umask: None,
        terminal: None,
        env: Vec::new(),
        prompt: false,
    })
    .encode()
    .split_off(HEADER_BYTES);
    let at = body.iter().position(|byte| *byte == b'?').unwrap();
    body[at] = 0;
    assert_eq!(Order::decode(&body), Err(Malformed));
}
