//! How many core instances a component makes, counted before it is compiled.
//!
//! A component may instantiate another one twice, that one a third one twice, and so on: a million instances in a kilobyte, and each
//! of them is compiled. What stands for a component that is only known when it is linked counts as none; the limits of compiling and
//! of an instance hold for that.

use wasmparser::{
    ComponentAlias, ComponentExternalKind, ComponentInstance, ComponentOuterAliasKind, ComponentTypeRef, Encoding,
    Instance, Parser, Payload,
};

/// A component, or a module, that is being read.
#[derive(Default)]
struct Scope {
    is_component: bool,
    /// How many core instances each component makes that has an index here.
    components: Vec<u64>,
    made: u64,
}

/// How many core instances a valid component makes.
pub(crate) fn core_instances(bytes: &[u8]) -> u64 {
    let mut scopes: Vec<Scope> = Vec::new();
    let mut made = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        // What is not valid is refused for that.
        let Ok(payload) = payload else { break };
        match payload {
            Payload::Version { encoding, .. } => {
                scopes.push(Scope { is_component: encoding == Encoding::Component, ..Scope::default() });
            }
            Payload::End(_) => {
                let Some(ended) = scopes.pop() else { break };
                match scopes.last_mut() {
                    Some(outer) if ended.is_component => outer.components.push(ended.made),
                    Some(_) => {}
                    None => made = ended.made,
                }
            }
            other => count(&mut scopes, other),
        }
    }
    made
}

/// What one section adds to the innermost component.
fn count(scopes: &mut [Scope], payload: Payload<'_>) {
    let Some((scope, outer)) = scopes.split_last_mut() else { return };
    match payload {
        Payload::InstanceSection(section) => {
            let made = section.into_iter().flatten().filter(|one| matches!(one, Instance::Instantiate { .. })).count();
            scope.made = scope.made.saturating_add(made as u64);
        }
        Payload::ComponentInstanceSection(section) => {
            for one in section.into_iter().flatten() {
                if let ComponentInstance::Instantiate { component_index, .. } = one {
                    let made = scope.components.get(component_index as usize).copied().unwrap_or(0);
                    scope.made = scope.made.saturating_add(made);
                }
            }
        }
        Payload::ComponentAliasSection(section) => {
            for alias in section.into_iter().flatten() {
                match alias {
                    ComponentAlias::Outer { kind: ComponentOuterAliasKind::Component, count, index } => {
                        let from = match (count as usize).checked_sub(1) {
                            None => Some(&*scope),
                            Some(above) => outer.iter().rev().nth(above),
                        };
                        let made = from.and_then(|from| from.components.get(index as usize)).copied();
                        scope.components.push(made.unwrap_or(0));
                    }
                    ComponentAlias::InstanceExport { kind: ComponentExternalKind::Component, .. } => {
                        scope.components.push(0);
                    }
                    _ => {}
                }
            }
        }
        Payload::ComponentImportSection(section) => {
            let imported = section.into_iter().flatten();
            let components = imported.filter(|one| matches!(one.ty, ComponentTypeRef::Component(_))).count();
            scope.components.resize(scope.components.len() + components, 0);
        }
        Payload::ComponentExportSection(section) => {
            for export in section.into_iter().flatten().filter(|one| one.kind == ComponentExternalKind::Component) {
                let made = scope.components.get(export.index as usize).copied().unwrap_or(0);
                scope.components.push(made);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_in(text: &str) -> u64 {
        core_instances(&wat::parse_str(text).expect("it parses"))
    }

    #[test]
    fn instances_are_counted_through_components() {
        let one = "(component $a (core module $m) (core instance (instantiate $m)) (core instance (instantiate $m)))";
        let check =
            |rest: &str, expect: u64| assert_eq!(count_in(&format!("(component {one} {rest})")), expect, "{rest}");
        check("", 0);
        check("(instance (instantiate $a))", 2);
        check("(component $b (instance (instantiate $a)) (instance (instantiate $a))) (instance (instantiate $b))", 4);
        check("(export $e \"e\" (component $a)) (instance (instantiate $e))", 2);
        check("(import \"c\" (component $c)) (instance (instantiate $c)) (instance (instantiate $a))", 2);
        check("(core module $m) (core instance (instantiate $m)) (instance (instantiate $a))", 3);
        check(
            "(component $b (component $c (instance (instantiate $a)))  (instance (instantiate $c))) (instance (instantiate $b))",
            2,
        );
    }

    #[test]
    fn a_number_that_no_number_holds_is_the_largest() {
        let levels: String = (0..70)
            .map(|n| format!("(component $c{} (instance (instantiate $c{n})) (instance (instantiate $c{n})))", n + 1))
            .collect();
        let first = "(component $c0 (core module $m) (core instance (instantiate $m)))";
        assert_eq!(count_in(&format!("(component {first} {levels} (instance (instantiate $c70)))")), u64::MAX);
    }
}
