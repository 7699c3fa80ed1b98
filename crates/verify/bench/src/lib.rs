//! What the Lambda functions cost: size, start, and CPU per request. Never part of a Lambda binary.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`runtime_api`] | Lambda's side of a sandbox: hands out events, collects answers, freezes in between |
//! | [`function`] | a function's process under it |
//! | [`process`] | what Linux says about a process: its state, CPU time and memory |
//! | [`subject`] | what to measure: a binary, its environment and the requests it gets |
//! | [`measure`] | measures subjects side by side |
//! | [`package`] | how much a binary weighs |
//! | [`report`] | the figures, for people and machines |
//!
//! It needs Linux: freezing can be asked of any Unix, the figures come from `/proc`.

pub mod function;
pub mod measure;
pub mod package;
pub mod process;
pub mod report;
pub mod runtime_api;
pub mod subject;
