//! Every name that a report may contain, so that a reader of the report can check that none is
//! missing.

use clap::ValueEnum;
use everfresh_core::branches::Branch;
use everfresh_local::faults::Fault;
use serde::Serialize;

use crate::actors::OUTCOMES;
use crate::check::Property;
use crate::faults::RunFault;
use crate::guards::Guard;
use crate::wire::REFUSALS;

/// All names, by kind.
#[derive(Clone, Debug, Serialize)]
pub struct Known {
    pub faults: Vec<&'static str>,
    /// In the order in which a proof removes them: the three whose absence is found soonest first.
    pub guards: Vec<String>,
    pub properties: Vec<&'static str>,
    /// Outcomes of messages, by the name of their metric.
    pub outcomes: Vec<&'static str>,
    /// DynamoDB refusals that the code has to distinguish.
    pub refusals: Vec<&'static str>,
    pub branches: Vec<&'static str>,
}

impl Known {
    pub fn all() -> Self {
        let guards = Guard::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Self {
            faults: Fault::KINDS.into_iter().chain(RunFault::ALL.iter().map(|fault| fault.name())).collect(),
            guards: guards.map(|guard| guard.get_name().to_owned()).collect(),
            properties: Property::ALL.iter().map(|property| property.name()).collect(),
            outcomes: OUTCOMES.iter().map(|metric| metric.name).collect(),
            refusals: REFUSALS.to_vec(),
            branches: Branch::ALL.iter().map(|branch| branch.name()).collect(),
        }
    }

    /// Each kind with its names.
    pub fn kinds(&self) -> [(&'static str, Vec<&str>); 6] {
        [
            ("faults", self.faults.clone()),
            ("guards", self.guards.iter().map(String::as_str).collect()),
            ("properties", self.properties.clone()),
            ("outcomes", self.outcomes.clone()),
            ("refusals", self.refusals.clone()),
            ("branches", self.branches.clone()),
        ]
    }
}
