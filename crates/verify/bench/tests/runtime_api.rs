//! The emulator with a real function.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::{Duration, Instant};

use everfresh_bench::function::Function;
use everfresh_bench::runtime_api::{Freeze, InvokeError, RuntimeApi};
use rustix::process::{Pid, Signal, kill_process};

const NONE: [(&str, &str); 0] = [];

fn echo(api: &RuntimeApi, variables: &[(&str, &str)]) -> Function {
    // Another package builds it into the same directory.
    let binary = Path::new(env!("CARGO_BIN_EXE_everfresh-bench")).with_file_name("everfresh-echo");
    Function::spawn(api, &binary, variables.iter().copied()).unwrap()
}

/// Signals take effect asynchronously.
async fn until_state(function: &Function, wanted: fn(char) -> bool) {
    let begin = Instant::now();
    while !wanted(function.state().unwrap()) {
        assert!(begin.elapsed() < Duration::from_secs(10), "still {}", function.state().unwrap());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn event_gets_its_response() {
    let api = RuntimeApi::start().await.unwrap();
    let function = echo(&api, &NONE);
    for round in 1..=20_u64 {
        let answer = api.invoke(format!(r#"{{"round":{round}}}"#)).await.unwrap();
        assert_eq!(answer, format!(r#"{{"round":{round}}}"#));
        api.wait_for_poll().await.unwrap();
        assert_eq!(api.polls(), round + 1);
    }
    assert!(function.cpu().unwrap() > Duration::ZERO);
    assert!(function.rss_bytes().unwrap() > 1 << 20);
}

#[tokio::test]
async fn function_error_is_reported_and_function_continues() {
    let api = RuntimeApi::start().await.unwrap();
    let _function = echo(&api, &NONE);
    let Err(InvokeError::Function(failure)) = api.invoke("no JSON").await else { panic!("no failure") };
    assert!(failure.error_message.contains("expected"), "{failure}");
    assert_eq!(api.invoke("1").await.unwrap(), "1");
}

#[tokio::test]
async fn frozen_function_uses_no_cpu_until_next_event() {
    let api = RuntimeApi::start().await.unwrap();
    api.set_freeze(Freeze::BetweenInvocations);
    let function = echo(&api, &NONE);
    for round in 0..10 {
        assert_eq!(api.invoke(format!("{round}")).await.unwrap(), format!("{round}"));
        api.wait_for_poll().await.unwrap();
        until_state(&function, |state| state == 'T').await;
    }
    let cpu = function.cpu().unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(function.cpu().unwrap(), cpu);

    api.resume();
    until_state(&function, |state| state != 'T').await;
    // The same poll is still pending: no second poll, so no second freeze.
    assert_eq!(api.polls(), 11);
    assert_eq!(api.invoke("true").await.unwrap(), "true");
    api.wait_for_poll().await.unwrap();
    until_state(&function, |state| state == 'T').await;
    api.set_freeze(Freeze::Never);
    until_state(&function, |state| state != 'T').await;
}

#[tokio::test]
async fn drop_ends_frozen_function() {
    let api = RuntimeApi::start().await.unwrap();
    api.set_freeze(Freeze::BetweenInvocations);
    let function = echo(&api, &NONE);
    api.wait_for_poll().await.unwrap();
    until_state(&function, |state| state == 'T').await;
    let process = format!("/proc/{}", function.pid());
    drop(function);
    assert!(!Path::new(&process).exists());
    assert!(matches!(api.invoke("1").await, Err(InvokeError::Ended { .. })));

    // The next process of the sandbox receives no event of the first one.
    let _function = echo(&api, &NONE);
    assert_eq!(api.invoke("2").await.unwrap(), "2");
}

#[tokio::test]
async fn crash_at_start_is_reported_with_last_output() {
    let api = RuntimeApi::start().await.unwrap();
    assert_eq!(api.invoke("1").await, Err(InvokeError::NoFunction));
    let function = echo(&api, &[("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "lots")]);
    let error = api.invoke("1").await.unwrap_err();
    assert_eq!(api.wait_for_poll().await, Err(error.clone()));
    let error = error.to_string();
    assert!(error.contains("exit code 101") && error.contains("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"), "{error}");
    assert!(function.logs().iter().any(|line| line.contains("panicked")));
}

#[tokio::test]
async fn init_error_is_reported() {
    let api = RuntimeApi::start().await.unwrap();
    // SnapStart calls an endpoint that the emulator does not have.
    let _function = echo(&api, &[("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")]);
    let Err(InvokeError::Init(failure)) = api.invoke("1").await else { panic!("no failure") };
    assert!(failure.error_message.contains("404"), "{failure}");
}

#[tokio::test]
async fn concurrent_events_are_handled_in_order() {
    let api = RuntimeApi::start().await.unwrap();
    let _function = echo(&api, &NONE);
    let answered = std::sync::Mutex::new(Vec::new());
    let invoke = async |event: &str| {
        assert_eq!(api.invoke(event.to_owned()).await.unwrap(), event);
        answered.lock().unwrap().push(event.to_owned());
    };
    tokio::join!(invoke("1"), invoke("2"), invoke("3"), invoke("4"), invoke("5"));
    assert_eq!(answered.into_inner().unwrap(), ["1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn hanging_function_is_killed_at_timeout() {
    let api = RuntimeApi::start().await.unwrap();
    api.set_timeout(Duration::from_millis(300));
    let function = echo(&api, &NONE);
    api.wait_for_poll().await.unwrap();
    kill_process(Pid::from_raw(function.pid().try_into().unwrap()).unwrap(), Signal::STOP).unwrap();
    let (first, second) = tokio::join!(api.invoke("1"), api.invoke("2"));
    assert!(matches!(first, Err(InvokeError::TimedOut { .. })), "{first:?}");
    assert_eq!(first, second);
    until_state(&function, |state| state == 'Z').await;
}

#[tokio::test]
async fn response_above_limit_is_refused() {
    let api = RuntimeApi::start().await.unwrap();
    let _function = echo(&api, &NONE);
    let event = |length: usize| format!("\"{}\"", "x".repeat(length - 2));
    assert_eq!(api.invoke(event(6_291_556)).await.unwrap().len(), 6_291_556);
    assert_eq!(api.invoke(event(6_291_557)).await, Err(InvokeError::TooLarge));
    assert_eq!(api.invoke("1").await.unwrap(), "1");
}

#[tokio::test]
async fn function_keeps_its_connection() {
    let api = RuntimeApi::start().await.unwrap();
    let _function = echo(&api, &NONE);
    for _ in 0..50 {
        api.invoke("1").await.unwrap();
    }
    assert_eq!(api.connections(), 1);
}
