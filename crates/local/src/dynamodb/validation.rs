//! Refuses requests that DynamoDB refuses and the engine would accept. All clients of the engine
//! pass through here, in process and over the gateway, so that no test passes with a request that
//! AWS refuses.
//!
//! Each rule is listed, with an example, in `tests/validation.rs`.

use dynoxide::DynoxideError;
use dynoxide::errors::CancellationReason;
use serde_json::Value;

use super::expressions::{Action, Comparison, Operand, actions, comparisons};
use super::schema::{KeyRole, Schema};

/// DynamoDB's limit of operands for `IN`.
const MAX_IN_OPERANDS: usize = 100;

const TYPES: [&str; 10] = ["B", "NULL", "SS", "BOOL", "L", "BS", "N", "NS", "S", "M"];

/// The error is DynamoDB's message.
type Checked = Result<(), String>;

/// One operation: the whole request, or one item of a transaction or batch.
struct Part<'r> {
    kind: Kind,
    table: &'r str,
    fields: &'r Value,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Put,
    Update,
    Delete,
    Check,
    Get,
    Query,
    Scan,
}

/// Refuses a request that DynamoDB would refuse. `schema` returns a table's keys.
pub(super) fn check(
    operation: &str,
    request: &Value,
    schema: impl Fn(&str) -> Option<Schema>,
) -> Result<(), DynoxideError> {
    let parts = parts(operation, request);
    for part in &parts {
        part.check_expressions().map_err(DynoxideError::ValidationException)?;
    }
    let errors: Vec<Option<String>> =
        parts.iter().map(|part| schema(part.table).and_then(|schema| part.check_keys(&schema).err())).collect();
    match errors.iter().flatten().next() {
        None => Ok(()),
        // In a transaction, errors that depend on the table are cancellation reasons per item.
        Some(_) if operation.starts_with("Transact") => Err(cancelled(errors)),
        Some(error) => Err(DynoxideError::ValidationException(error.clone())),
    }
}

fn parts<'r>(operation: &str, request: &'r Value) -> Vec<Part<'r>> {
    let part = |kind, fields: &'r Value| Part { kind, table: fields["TableName"].as_str().unwrap_or_default(), fields };
    let kind = match operation {
        "PutItem" => Kind::Put,
        "UpdateItem" => Kind::Update,
        "DeleteItem" => Kind::Delete,
        "GetItem" => Kind::Get,
        "Query" => Kind::Query,
        "Scan" => Kind::Scan,
        "TransactWriteItems" | "TransactGetItems" => {
            let kinds = [
                ("Put", Kind::Put),
                ("Update", Kind::Update),
                ("Delete", Kind::Delete),
                ("ConditionCheck", Kind::Check),
                ("Get", Kind::Get),
            ];
            let items = request["TransactItems"].as_array().into_iter().flatten();
            return items
                .filter_map(|item| kinds.iter().find_map(|(name, kind)| Some(part(*kind, item.get(name)?))))
                .collect();
        }
        "BatchWriteItem" => {
            let tables = request["RequestItems"].as_object().into_iter().flatten();
            return tables
                .flat_map(|(table, writes)| writes.as_array().into_iter().flatten().map(move |write| (table, write)))
                .filter_map(|(table, write)| Some(Part { kind: Kind::Put, table, fields: write.get("PutRequest")? }))
                .collect();
        }
        _ => return Vec::new(),
    };
    vec![part(kind, request)]
}

fn cancelled(errors: Vec<Option<String>>) -> DynoxideError {
    let code = |error: &Option<String>| if error.is_some() { "ValidationError" } else { "None" };
    let codes: Vec<&str> = errors.iter().map(code).collect();
    let message =
        format!("Transaction cancelled, please refer cancellation reasons for specific reasons [{}]", codes.join(", "));
    let reason =
        |error: Option<String>| CancellationReason { code: code(&error).to_owned(), message: error, item: None };
    DynoxideError::TransactionCanceledException(message, errors.into_iter().map(reason).collect())
}

impl<'r> Part<'r> {
    fn text(&self, field: &str) -> Option<&'r str> {
        self.fields[field].as_str()
    }

    /// Checks that do not depend on the table.
    fn check_expressions(&self) -> Checked {
        self.check_placeholders()?;
        for field in ["ConditionExpression", "FilterExpression"] {
            for comparison in self.text(field).map(|text| comparisons(text, self.fields)).unwrap_or_default() {
                check_comparison(&comparison).map_err(|error| format!("Invalid {field}: {error}"))?;
            }
        }
        for action in self.actions() {
            check_action(&action).map_err(|error| format!("Invalid UpdateExpression: {error}"))?;
        }
        Ok(())
    }

    /// Refuses empty placeholder maps, and placeholders without any expression. The engine itself
    /// refuses unused placeholders.
    fn check_placeholders(&self) -> Checked {
        let expressions: &[&str] = match self.kind {
            Kind::Put | Kind::Delete | Kind::Check => &["ConditionExpression"],
            Kind::Update => &["UpdateExpression", "ConditionExpression"],
            Kind::Get => &["ProjectionExpression"],
            Kind::Query => &["KeyConditionExpression", "FilterExpression", "ProjectionExpression"],
            Kind::Scan => &["FilterExpression", "ProjectionExpression"],
        };
        let is_used = expressions.iter().any(|field| self.text(field).is_some());
        for field in ["ExpressionAttributeNames", "ExpressionAttributeValues"] {
            // GetItem has no ExpressionAttributeValues.
            let Some(placeholders) = self.fields[field].as_object().filter(|_| self.takes(field)) else { continue };
            if !is_used {
                return Err(format!("{field} can only be specified when using expressions"));
            }
            if placeholders.is_empty() {
                return Err(format!("{field} must not be empty"));
            }
        }
        Ok(())
    }

    fn takes(&self, field: &str) -> bool {
        field == "ExpressionAttributeNames" || self.kind != Kind::Get
    }

    fn actions(&self) -> Vec<Action<'r>> {
        let update = self.text("UpdateExpression").filter(|_| self.kind == Kind::Update);
        update.map(|text| actions(text, self.fields)).unwrap_or_default()
    }

    /// Checks that depend on the key attributes.
    fn check_keys(&self, schema: &Schema) -> Checked {
        match self.kind {
            Kind::Put => self.check_item(schema),
            Kind::Update => self.check_update(schema),
            Kind::Query | Kind::Scan => self.check_read(schema),
            Kind::Delete | Kind::Check | Kind::Get => Ok(()),
        }
    }

    fn check_item(&self, schema: &Schema) -> Checked {
        let mut attributes = self.fields["Item"].as_object().into_iter().flatten();
        attributes.try_for_each(|(name, value)| fits_indexes(schema, name, value))
    }

    fn check_update(&self, schema: &Schema) -> Checked {
        for action in self.actions() {
            let Action { attribute, values, whole, .. } = &action;
            if schema.is_key(attribute) {
                return Err(format!(
                    "One or more parameter values were invalid: Cannot update attribute {attribute}. This attribute is part of the key"
                ));
            }
            if *whole {
                values.iter().try_for_each(|value| fits_indexes(schema, attribute, value))?;
            }
        }
        Ok(())
    }

    fn check_read(&self, schema: &Schema) -> Checked {
        let keys = schema.keys_of(self.text("IndexName"));
        for comparison in
            self.text("KeyConditionExpression").map(|text| comparisons(text, self.fields)).unwrap_or_default()
        {
            let Some((Operand::Path(path), values)) = comparison.operands.split_first() else { continue };
            let Some((name, role)) = keys.iter().find(|(name, _)| path[..] == [name.clone()]) else { continue };
            for value in values {
                if let Operand::Value(value) = value {
                    is_key_value(name, *role, value)?;
                }
            }
        }
        let start = self.fields["ExclusiveStartKey"].as_object();
        for (name, role) in schema.keys_of(None).iter().chain(keys) {
            if let Some(value) = start.and_then(|start| start.get(name)) {
                is_key_value(name, *role, value)
                    .map_err(|error| format!("The provided starting key is invalid: {error}"))?;
            }
        }
        Ok(())
    }
}

fn fits_indexes(schema: &Schema, attribute: &str, value: &Value) -> Checked {
    match schema.in_indexes(attribute).find_map(|role| role.length_error(value)) {
        Some(error) => Err(error.to_owned()),
        None => Ok(()),
    }
}

fn is_key_value(name: &str, role: KeyRole, value: &Value) -> Checked {
    if value["S"] == "" || value["B"] == "" {
        let kind = if value["S"] == "" { "string" } else { "binary" };
        return Err(format!(
            "One or more parameter values are not valid. The AttributeValue for a key attribute cannot contain an empty {kind} value. Key: {name}"
        ));
    }
    role.length_error(value).map_or(Ok(()), |error| Err(error.to_owned()))
}

fn check_comparison(comparison: &Comparison<'_>) -> Checked {
    let Comparison { operator, operands } = comparison;
    if let Some((Operand::Path(first), rest)) = operands.split_first()
        && rest.iter().any(|operand| matches!(operand, Operand::Path(path) if path == first))
    {
        return Err(format!(
            "The first operand must be distinct from the remaining operands for this operator or function; operator: {operator}, \
             first operand: [{}]",
            first.join(", ")
        ));
    }
    match operator.as_str() {
        "<" | "<=" | ">" | ">=" => operands_are(comparison, &["S", "N", "B"]),
        "BETWEEN" => operands_are(comparison, &["S", "N", "B"]).and_then(|()| check_bounds(operands)),
        "begins_with" => operands_are(comparison, &["S", "B"]),
        "attribute_type" => check_type_name(operands),
        "IN" if operands.len() - 1 > MAX_IN_OPERANDS => Err(format!(
            "The IN operator is provided with too many operands; number of operands: {}",
            operands.len() - 1
        )),
        _ => Ok(()),
    }
}

/// Checks the types of the request's values. Types of stored attributes matter only at evaluation.
fn operands_are(comparison: &Comparison<'_>, types: &[&str]) -> Checked {
    for operand in &comparison.operands {
        if let Operand::Value(value) = operand
            && let Some(kind) = type_of(value).filter(|kind| !types.contains(kind))
        {
            return Err(incorrect_operand(&comparison.operator, kind));
        }
    }
    Ok(())
}

fn check_bounds(operands: &[Operand<'_>]) -> Checked {
    let [_, Operand::Value(lower), Operand::Value(upper)] = operands else { return Ok(()) };
    let kinds = (type_of(lower), type_of(upper));
    let shown = |value: &Value| {
        let kind = type_of(value).unwrap_or_default();
        format!("AttributeValue: {{{kind}:{}}}", value[kind].as_str().unwrap_or_default())
    };
    let bounds = format!("lower bound operand: {}, upper bound operand: {}", shown(lower), shown(upper));
    if kinds.0 != kinds.1 {
        return Err(format!("The BETWEEN operator requires same data type for lower and upper bounds; {bounds}"));
    }
    let number = |value: &Value| value["N"].as_str().and_then(|digits| digits.parse::<f64>().ok());
    let is_reversed = match kinds.0 {
        Some("S") => lower["S"].as_str() > upper["S"].as_str(),
        Some("N") => number(lower) > number(upper),
        _ => false,
    };
    if is_reversed {
        return Err(format!(
            "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; {bounds}"
        ));
    }
    Ok(())
}

fn check_type_name(operands: &[Operand<'_>]) -> Checked {
    let [_, Operand::Value(value)] = operands else { return Ok(()) };
    match value["S"].as_str() {
        None => Err(incorrect_operand("attribute_type", type_of(value).unwrap_or_default())),
        Some(name) if TYPES.contains(&name) => Ok(()),
        Some(name) => {
            Err(format!("Invalid attribute type name found; type: {name}, valid types: {{{}}}", TYPES.join(",")))
        }
    }
}

fn check_action(action: &Action<'_>) -> Checked {
    let types: &[&str] = match action.clause.as_str() {
        "ADD" => &["N", "SS", "NS", "BS"],
        "DELETE" => &["SS", "NS", "BS"],
        _ => return Ok(()),
    };
    match action.values.iter().filter_map(|value| type_of(value)).find(|kind| !types.contains(kind)) {
        None => Ok(()),
        Some(kind) => Err(format!(
            "Incorrect operand type for operator or function; operator: {}, operand type: {}",
            action.clause,
            type_name(kind)
        )),
    }
}

fn incorrect_operand(operator: &str, kind: &str) -> String {
    format!("Incorrect operand type for operator or function; operator or function: {operator}, operand type: {kind}")
}

fn type_of(value: &Value) -> Option<&str> {
    value.as_object().and_then(|value| value.keys().next()).map(String::as_str)
}

/// DynamoDB's type name in errors about updates.
fn type_name(kind: &str) -> &str {
    match kind {
        "S" => "STRING",
        "N" => "NUMBER",
        "B" => "BINARY",
        "SS" => "STRING_SET",
        "NS" => "NUMBER_SET",
        "BS" => "BINARY_SET",
        "BOOL" => "BOOLEAN",
        "L" => "LIST",
        "M" => "MAP",
        other => other,
    }
}
