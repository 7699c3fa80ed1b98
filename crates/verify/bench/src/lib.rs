//! Measures the Lambda functions: size, start, and CPU time per request. Never part of a Lambda
//! binary.
//!
//! # Layout
//!
//! | Where | What |
//! |---|---|
//! | [`runtime_api`] | emulated Lambda Runtime API: delivers events, collects responses, freezes the process between them |
//! | [`function`] | the process of a function under the emulator |
//! | [`process`] | state, CPU time and memory of a process, from `/proc` |
//! | [`subject`] | what to measure: a binary, its environment and its requests |
//! | [`measure`] | measures subjects side by side |
//! | [`package`] | the size of a binary, plain and zipped |
//! | [`report`] | the results as text and JSON |
//!
//! Linux only: the figures come from `/proc`.

pub mod function;
pub mod measure;
pub mod package;
pub mod process;
pub mod report;
pub mod runtime_api;
pub mod subject;
