//! What commands get from the target, the claim and the call.

use wire::Code;
use wire::agent::{ConfigureRequest, ExecRequest, HealthRequest};

use crate::sandbox::{Sandbox, argv, env, problem, promising, shell, signed, text, with_token};

#[tokio::test]
async fn environment_directory_and_user_are_the_images_then_the_claims_then_the_calls() {
    let sandbox = Sandbox::start().await;
    let directory = sandbox.directory.path().display().to_string();
    assert_eq!(
        sandbox.sh("echo $FROM; pwd; id -u; echo $HOME $USER; umask").await,
        format!("image\n{directory}\n0\n/root root\n0022\n")
    );

    let bound = ConfigureRequest {
        env: env(&[("FROM", "claim"), ("ALSO", "claim")]),
        cwd: "/tmp".into(),
        user: "nobody".into(),
        ..Default::default()
    };
    sandbox.client.clone().configure(signed(bound)).await.unwrap();
    // A retry, from a record that has lost the environment variables, or after the directory is gone.
    for cwd in ["/tmp", "/gone"] {
        let again = ConfigureRequest { cwd: cwd.into(), ..ConfigureRequest::default() };
        sandbox.client.clone().configure(signed(again)).await.unwrap();
    }
    assert_eq!(sandbox.sh("echo $FROM $ALSO; pwd; id -un").await, "claim claim\n/tmp\nnobody\n");

    let call = ExecRequest {
        env: env(&[("FROM", "call")]),
        cwd: "/".into(),
        user: "0:4711".into(),
        umask: Some(0o077),
        ..shell("echo $FROM $ALSO; pwd; id -u; id -g; id -G; umask; echo $HOME")
    };
    let result = sandbox.exec(call).await.unwrap();
    assert_eq!(text(&result), "call claim\n/\n0\n4711\n4711\n0077\n/root\n");
}

#[tokio::test]
async fn commands_open_as_many_files_as_the_target_and_the_sidecar_as_many_as_may_be() {
    let sandbox = Sandbox::start_with_descriptors(300).await;
    assert_eq!(sandbox.sh("ulimit -Sn").await, "300\n");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", sandbox.sidecar.0.id())).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let [soft, hard] = [0, 1].map(|n| files.split_whitespace().nth(n).unwrap());
    assert_eq!(soft, hard, "{files}");
}

#[tokio::test]
async fn a_mask_may_be_any_also_none() {
    let sandbox = Sandbox::start().await;
    for (umask, expected) in [(Some(0), "0000\n"), (Some(0o077), "0077\n"), (None, "0022\n")] {
        let request = ExecRequest { umask, ..shell("umask") };
        assert_eq!(text(&sandbox.exec(request).await.unwrap()), expected);
    }
}

#[tokio::test]
async fn numbers_are_users_in_an_image_that_knows_none() {
    let sandbox = Sandbox::start_without_users().await;
    assert_eq!(sandbox.sh("wc -c < /etc/passwd; wc -c < /etc/group").await, "0\n0\n");
    for (user, expected) in
        [("4711", "4711 0 0 /\n"), ("4711:4712", "4711 4712 4712 /\n"), ("0", "0 0 0 /root\n")]
    {
        let request = ExecRequest { user: user.into(), ..shell("echo $(id -u) $(id -g) $(id -G) $HOME") };
        assert_eq!(text(&sandbox.exec(request).await.unwrap()), expected);
    }
    let refused = sandbox.exec(ExecRequest { user: "root".into(), ..argv(&["true"]) }).await.unwrap_err();
    assert_eq!(refused.details["reason"], "user_not_found");
}

#[tokio::test]
async fn a_claim_that_cannot_hold_is_refused_and_changes_nothing() {
    let sandbox = Sandbox::start().await;
    for (bound, reason) in [
        (ConfigureRequest { user: "no-such-user".into(), ..Default::default() }, "user_not_found"),
        (ConfigureRequest { cwd: "/no/such/directory".into(), ..Default::default() }, "cwd_not_found"),
    ] {
        let status = sandbox.client.clone().configure(signed(bound)).await.unwrap_err();
        assert_eq!(crate::sandbox::problem(&status).details["reason"], reason);
    }
    assert_eq!(sandbox.sh("id -u").await, "0\n");
}

#[tokio::test]
async fn nothing_runs_before_the_promised_settings_are_bound() {
    let sandbox = Sandbox::start().await;
    let mut client = sandbox.client.clone();
    let token = promising("digest-1");
    let run =
        |exec_id: &str| with_token(ExecRequest { exec_id: exec_id.into(), ..shell("echo $SECRET") }, &token);
    let refused = problem(&client.exec(run("e-early")).await.unwrap_err());
    assert_eq!(refused.code, Code::SettingsPending);
    client.health(with_token(HealthRequest {}, &token)).await.unwrap();

    let bind = |digest: &str, value: &str| ConfigureRequest {
        env: env(&[("SECRET", value)]),
        digest: digest.into(),
        ..Default::default()
    };
    client.configure(with_token(bind("digest-1", "7"), &token)).await.unwrap();
    client.configure(with_token(bind("digest-1", "7"), &token)).await.unwrap();
    let other = client.configure(with_token(bind("digest-2", "8"), &token)).await.unwrap_err();
    assert_eq!(problem(&other).code, Code::Conflict);
    assert_eq!(text(&client.exec(run("e-late")).await.unwrap().into_inner()), "7\n");
    let stranger = with_token(shell("true"), &promising("digest-2"));
    assert_eq!(problem(&client.exec(stranger).await.unwrap_err()).code, Code::SettingsPending);
}

#[tokio::test]
async fn a_plain_user_has_no_powers_and_may_open_its_own_streams() {
    let sandbox = Sandbox::start().await;
    let request = ExecRequest {
        user: "nobody".into(),
        ..shell(
            "grep -E 'Cap(Eff|Prm|Amb)' /proc/self/status | cut -f2 | sort -u; echo direct > /dev/stdout; echo $USER",
        )
    };
    assert_eq!(text(&sandbox.exec(request).await.unwrap()), "0000000000000000\ndirect\nnobody\n");
}

#[tokio::test]
async fn what_cannot_start_says_why_and_may_be_tried_again() {
    let sandbox = Sandbox::start().await;
    sandbox.sh("printf '#!/no/such/interpreter\\n' > script; chmod 755 script; touch plain").await;
    let with = |change: fn(&mut ExecRequest)| {
        let mut request = argv(&["true"]);
        change(&mut request);
        request
    };
    for (request, reason) in [
        (with(|r| r.argv = vec!["no-such-program".into()]), "command_not_found"),
        (with(|r| r.argv = vec!["/etc/passwd/x".into()]), "command_not_found"),
        (with(|r| r.argv = vec!["./plain".into()]), "not_executable"),
        (with(|r| r.argv = vec!["./script".into()]), "not_executable"),
        (with(|r| r.argv = vec!["/tmp".into()]), "not_executable"),
        (with(|r| r.cwd = "/no/such/directory".into()), "cwd_not_found"),
        (with(|r| r.user = "no-such-user".into()), "user_not_found"),
        (with(|r| r.user = "root:no-such-group".into()), "user_not_found"),
    ] {
        let exec_id = request.exec_id.clone();
        let problem = sandbox.exec(request).await.unwrap_err();
        assert_eq!(
            (problem.code, problem.details["reason"].as_str()),
            (Code::InvalidArgument, reason),
            "{problem}"
        );
        let again = sandbox.exec(ExecRequest { exec_id, ..argv(&["true"]) }).await.unwrap();
        assert!(!again.replayed);
    }
}

#[tokio::test]
async fn a_relative_directory_and_a_relative_program_start_where_the_image_does() {
    let sandbox = Sandbox::start().await;
    sandbox.sh("mkdir sub; printf '#!/bin/sh\\npwd' > sub/prog; chmod 755 sub/prog").await;
    let request = ExecRequest { cwd: "sub".into(), ..argv(&["./prog"]) };
    let expected = format!("{}/sub\n", sandbox.directory.path().display());
    assert_eq!(text(&sandbox.exec(request).await.unwrap()), expected);
}

#[tokio::test]
async fn without_bash_a_string_goes_to_sh() {
    let sandbox = Sandbox::start().await;
    sandbox.sh("mkdir only; ln -s /bin/sh only/sh; ln -s /bin/readlink only/readlink").await;
    let path = format!("{}/only", sandbox.directory.path().display());
    let request = ExecRequest { env: env(&[("PATH", &path)]), ..shell("echo \"$0 ${BASH:-none}\"") };
    assert_eq!(text(&sandbox.exec(request).await.unwrap()), "sh none\n");
    assert!(sandbox.sh("echo $BASH").await.ends_with("bash\n"));
}
