//! The whole agent under a seeded scheduler with faults at every await: see the README.md of this folder.

mod chaos;
mod check;
mod doctored;
mod model;
mod plan;
mod plugins;
mod reach;
mod record;
mod run;
mod services;

use std::collections::BTreeMap;

use reach::Reach;
use run::Life;

/// Seeds of a run of the tests; the release build is several times as fast.
const SEEDS: u64 = if cfg!(debug_assertions) { 2_000 } else { 10_000 };
/// So many seeds reach all there is to reach.
const ENOUGH: usize = 1_000;
/// How many seeds, if not [`SEEDS`].
const HOW_MANY: &str = "DSH_SEEDS";
/// The one seed to run, with its whole story.
const ONE: &str = "DSH_SEED";

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|value| value.parse().expect("a number"))
}

/// A seed that does not keep an invariant.
struct Problem {
    seed: u64,
    violations: Vec<String>,
    story: String,
}

/// What is wrong with a seed, with all that is needed to see why.
fn problem(seed: u64, reach: &mut Reach) -> Option<Problem> {
    let lives = run::run(seed);
    lives.iter().for_each(|life| reach.of(life));
    let (mut violations, mut story) = (Vec::new(), String::new());
    for (at, life) in lives.iter().enumerate() {
        let found = check::violations(life);
        if !found.is_empty() {
            violations.extend(found);
            story.push_str(&format!("agent {} of {}: {}\n", at + 1, lives.len(), life.story()));
        }
    }
    (!violations.is_empty()).then_some(Problem { seed, violations, story })
}

/// How often each invariant was violated and by which seeds, and the shortest story of all.
fn report(problems: &[Problem]) -> String {
    let mut by_name: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for problem in problems {
        for violation in &problem.violations {
            by_name.entry(violation.split(": ").next().unwrap_or_default()).or_default().push(problem.seed);
        }
    }
    let table: Vec<String> = by_name
        .iter()
        .map(|(name, seeds)| format!("{:>5} × {name}: seeds {:?} …", seeds.len(), &seeds[..seeds.len().min(5)]))
        .collect();
    let Some(shortest) = problems.iter().min_by_key(|problem| problem.story.len()) else { return String::new() };
    format!(
        "{}\n\nthe shortest: seed {}; to run it again: DSH_SEED={} cargo test -p dsh-loop --test simulation every_seed\n{}\n\n{}\n",
        shortest.story,
        shortest.seed,
        shortest.seed,
        shortest.violations.join("\n"),
        table.join("\n"),
    )
}

#[test]
fn every_seed_keeps_every_invariant() {
    let seeds: Vec<u64> = match number(ONE) {
        Some(seed) => {
            run::run(seed).iter().for_each(|life| println!("{}\n", life.story()));
            vec![seed]
        }
        None => (0..number(HOW_MANY).unwrap_or(SEEDS)).collect(),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let run = &|thread: usize| {
        let mut reach = Reach::default();
        let mine = seeds.iter().skip(thread).step_by(threads);
        (mine.filter_map(|seed| problem(*seed, &mut reach)).collect::<Vec<_>>(), reach)
    };
    let (mut problems, mut reach) = (Vec::new(), Reach::default());
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        for thread in running {
            let (found, reached) = thread.join().expect("no panic");
            problems.extend(found);
            reach.add(reached);
        }
    });
    assert!(problems.is_empty(), "{}", report(&problems));
    println!("{:?}", reach.0);
    assert!(seeds.len() < ENOUGH || reach.missing().is_empty(), "never reached: {:?}", reach.missing());
}

#[test]
fn a_seed_gives_the_same_transcript_twice() {
    for seed in 0..50 {
        let story = |lives: Vec<Life>| lives.iter().map(Life::story).collect::<String>();
        assert_eq!(story(run::run(seed)), story(run::run(seed)), "seed {seed}");
    }
}
