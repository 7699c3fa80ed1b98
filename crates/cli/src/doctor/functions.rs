//! The deployed functions: their settings are valid, fit together, and fit this deployment.

use std::collections::HashMap;

use everfresh_core::config::Ladder;
use everfresh_core::environment::SettingsError;
use everfresh_enqueue::explain;

use super::Report;
use crate::target::{Functions, Target};

/// The alias that the queues and the distribution invoke.
const ALIAS: &str = "live";

const TIMEOUT: &str = "EVERFRESH_FUNCTION_TIMEOUT_MS";

/// Returns the worker's ladder of timeouts, if it is known and valid.
pub(super) async fn check(target: &Target, report: &mut Report) -> Option<Ladder> {
    let Some(functions) = &target.functions else {
        let ladder = target.ladder?;
        super::ladder(&ladder, report);
        return Some(ladder);
    };
    let ladder = worker(target, functions, report).await;
    if let Some(serving) = deployed(target, &functions.serving, "serving function", report).await {
        let settings = everfresh_serve::Settings::read(|variable| serving.get(variable).cloned());
        let deploy = settings.as_ref().ok().map(|settings| settings.deploy);
        judge("serving function", settings.map(drop), report);
        same_deploy(target, "serving function", deploy, report);
    }
    if let Some(maintenance) = deployed(target, &functions.maintenance, "maintenance function", report).await {
        let settings = everfresh_maintenance::Settings::read(|variable| maintenance.get(variable).cloned());
        judge("maintenance function", settings.map(drop), report);
    }
    ladder
}

async fn worker(target: &Target, functions: &Functions, report: &mut Report) -> Option<Ladder> {
    let variables = deployed(target, &functions.worker, "worker", report).await?;
    match everfresh_worker::Settings::read(|variable| variables.get(variable).cloned()) {
        Ok(settings) => {
            judge("worker", Ok(()), report);
            super::ladder(&settings.regenerate.ladder, report);
            same_deploy(target, "worker", Some(settings.regenerate.deploy), report);
            Some(settings.regenerate.ladder)
        }
        Err(error) => {
            judge("worker", Err(error), report);
            None
        }
    }
}

/// The variables of a function's published version.
async fn deployed(target: &Target, function: &str, name: &str, report: &mut Report) -> Option<HashMap<String, String>> {
    let lambda = aws_sdk_lambda::Client::new(target.clients.shared());
    let got = lambda.get_function_configuration().function_name(function).qualifier(ALIAS).send().await;
    let got = match got {
        Ok(got) => got,
        Err(error) => {
            let next =
                format!("check that it has the alias `{ALIAS}`, and the permission lambda:GetFunctionConfiguration");
            report.warn(name, format!("{function}: {}", explain(&error)), next);
            return None;
        }
    };
    let timeout_ms = got.timeout().and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or_default() * 1_000;
    let variables = got.environment.and_then(|environment| environment.variables).unwrap_or_default();
    let assumed_ms = variables.get(TIMEOUT).and_then(|text| text.parse::<u64>().ok());
    if let Some(assumed_ms) = assumed_ms.filter(|assumed_ms| timeout_ms > 0 && *assumed_ms != timeout_ms) {
        let found = format!("{TIMEOUT} is {assumed_ms}, and Lambda ends it after {timeout_ms} ms");
        report.fail(format!("{name} timeout"), found, "deploy the template, which sets both");
    }
    Some(variables)
}

fn judge(name: &str, settings: Result<(), SettingsError>, report: &mut Report) {
    match settings {
        Ok(()) => report.ok(name, "its settings are valid"),
        Err(error) => report.fail(name, error.to_string(), "correct the variable, or deploy the same version as this"),
    }
}

/// Functions of different deployments find each other's pages stale.
fn same_deploy(target: &Target, name: &str, deploy: Option<u64>, report: &mut Report) {
    if let Some(deploy) = deploy.filter(|deploy| *deploy != target.deploy) {
        let found = format!("deployment {deploy}, and the stack says {}", target.deploy);
        report.warn(format!("{name} version"), found, "wait for the gradual deployment to end, or deploy again");
    }
}
