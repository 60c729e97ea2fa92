//! The inbox between a driver and whoever sends, steers, aborts, cancels, waits and disposes.

use std::sync::{Arc, Mutex};

use dsh_loop::{Cause, Drained, Due, Inbox, QueueMode, Queued};
use dsh_seam::event::{LiveEvent, Source, Status};
use dsh_seam::message::ContentBlock;
use shuttle::future::{JoinHandle, block_on, spawn};

use crate::explore::{all_orders, many_orders, point};

/// An inbox, and what is known of it from outside. The events come in the order of what happened, since they are emitted under the
/// inbox's lock.
struct World {
    inbox: Inbox,
    /// Of each turn.
    steps: u32,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    /// Texts of `agent/queued`.
    queued: Vec<String>,
    statuses: Vec<Status>,
    /// Sum of `agent/dropped`.
    dropped: u32,
    /// What the driver took, as it took it.
    drained: Vec<String>,
    /// Reasons with which turns ended.
    causes: Vec<Option<Cause>>,
    turns: u32,
}

impl World {
    fn new(mode: QueueMode, held: bool, steps: u32) -> Arc<Self> {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let sink = seen.clone();
        let emit = move |event: LiveEvent| sink.lock().expect("not poisoned").emitted(&event);
        Arc::new(Self { inbox: Inbox::new(mode, 0, false, held, Box::new(emit)), steps, seen })
    }

    fn seen<T>(&self, look: impl FnOnce(&mut Seen) -> T) -> T {
        look(&mut self.seen.lock().expect("not poisoned"))
    }

    fn send(&self, text: &str) -> bool {
        self.inbox.enqueue(message(text)).is_ok()
    }

    fn steer(&self, text: &str) -> bool {
        self.inbox.steer(message(text)).is_ok()
    }

    /// What the driver of an agent does with its inbox, with the log left out.
    async fn drive(&self) {
        loop {
            self.inbox.confirm_quiet();
            match self.inbox.wait_for_queued(|| false).await {
                None => return assert_eq!(self.inbox.status(), Status::Disposed, "gave up while alive"),
                Some(None) => {}
                Some(Some(due)) => {
                    let mut next = Some(due);
                    while let Some(due) = next {
                        self.turn(due);
                        next = self.inbox.hand_over();
                    }
                }
            }
        }
    }

    /// One turn: its steps read steering, and what cancels it is looked at all the time.
    fn turn(&self, Due { messages, token }: Due) {
        assert!(messages.next().is_some(), "a turn without a message");
        self.take(messages);
        let mut causes = vec![token.cause()];
        for _ in 0..self.steps {
            self.take(self.inbox.drain_steering());
            causes.push(token.cause());
        }
        let last = self.inbox.retire_token();
        causes.push(last.clone());
        for [before, after] in causes.array_windows() {
            let kept = before.is_none() || before == after;
            let replaced = matches!((before, after), (Some(Cause::Aborted(_)), Some(Cause::Disposed(_))));
            assert!(kept || replaced, "{before:?} became {after:?}");
        }
        assert_eq!(token.token().is_cancelled(), token.cause().is_some());
        self.seen(|seen| {
            seen.causes.push(last);
            seen.turns += 1;
        });
    }

    fn take(&self, mut drained: Drained) {
        while let Some(message) = drained.next() {
            let text = message.content()[0].as_text().unwrap_or_default().to_owned();
            self.seen(|seen| seen.drained.push(text));
            drained.taken();
        }
    }

    /// Ends the agent and checks that every message taken in was read once or is counted.
    fn settle(&self, accepted: usize) {
        let left = self.inbox.dropped();
        assert_eq!(self.inbox.dropped(), 0, "dropped messages are counted once");
        let seen = self.seen.lock().expect("not poisoned");
        assert_eq!(seen.queued.len(), accepted, "one `agent/queued` for each message taken in");
        let mut once = seen.drained.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), seen.drained.len(), "read twice: {:?}", seen.drained);
        assert!(seen.drained.iter().all(|text| seen.queued.contains(text)), "read, but never sent: {:?}", seen.drained);
        assert_eq!(seen.drained.len() + (left + seen.dropped) as usize, accepted, "{:?}", seen.drained);
        let mut before = Status::Idle;
        for status in &seen.statuses {
            assert!(before != *status && before != Status::Disposed, "{:?}", seen.statuses);
            before = *status;
        }
    }
}

impl Seen {
    fn emitted(&mut self, event: &LiveEvent) {
        match event {
            LiveEvent::AgentQueued(data) => {
                assert_ne!(self.statuses.last(), Some(&Status::Disposed), "queued after the end");
                self.queued.push(data.content[0].as_text().unwrap_or_default().to_owned());
            }
            LiveEvent::AgentStatus(data) => {
                if data.status == Status::Idle {
                    let waiting = self.queued.len() - self.drained.len() - self.dropped as usize;
                    assert_eq!(waiting, 0, "idle although a message waits");
                }
                self.statuses.push(data.status);
            }
            LiveEvent::AgentDropped(data) => self.dropped += data.count,
            other => panic!("{}", other.kind()),
        }
    }
}

fn message(text: &str) -> Queued {
    Queued::new(vec![ContentBlock::text(text)], Source::User).expect("says something")
}

/// Starts the driver.
fn driver(world: &Arc<World>) -> JoinHandle<()> {
    let world = world.clone();
    let driver = spawn(async move { world.drive().await });
    point();
    driver
}

/// Starts a task that does something.
fn task<T: Send + 'static>(world: &Arc<World>, act: impl FnOnce(&World) -> T + Send + 'static) -> JoinHandle<T> {
    let world = world.clone();
    let task = spawn(async move { act(&world) });
    point();
    task
}

/// What a task came to.
fn done<T>(task: JoinHandle<T>) -> T {
    block_on(task).expect("it does not panic")
}

/// Waits until the agent is idle, ends it, and waits for its driver.
fn end(world: &World, driver: JoinHandle<()>) {
    block_on(world.inbox.quiet());
    let waits = world.inbox.has_pending() || world.inbox.has_steering();
    assert!(!waits || world.inbox.status() == Status::Disposed, "quiet although a message waits");
    world.inbox.dispose("done");
    done(driver);
}

#[test]
fn no_wake_up_is_lost_while_the_driver_falls_asleep() {
    all_orders(|| {
        let world = World::new(QueueMode::All, false, 0);
        let driver = driver(&world);
        assert!(world.send("a"));
        end(&world, driver);
        world.settle(1);
        assert_eq!(world.seen(|seen| seen.drained.len()), 1, "it is read");
    });
}

#[test]
fn no_wake_up_is_lost_between_two_senders() {
    many_orders(|| {
        let world = World::new(QueueMode::All, false, 0);
        let driver = driver(&world);
        let sender = task(&world, |world| world.send("a"));
        assert!(world.send("b") && done(sender));
        end(&world, driver);
        world.settle(2);
        assert_eq!(world.seen(|seen| seen.drained.len()), 2, "both are read");
    });
}

#[test]
fn steering_is_read_whenever_it_comes() {
    many_orders(|| {
        let world = World::new(QueueMode::All, false, 1);
        assert!(world.send("a"));
        let driver = driver(&world);
        assert!(world.steer("b"));
        end(&world, driver);
        world.settle(2);
        assert_eq!(world.seen(|seen| seen.drained.len()), 2, "both are read");
    });
}

#[test]
fn one_message_a_turn_reads_them_all() {
    many_orders(|| {
        let world = World::new(QueueMode::One, false, 2);
        let driver = driver(&world);
        let tasks = [task(&world, |world| world.send("a")), task(&world, |world| world.steer("b"))];
        assert!(world.send("c"));
        tasks.into_iter().for_each(|task| assert!(done(task)));
        end(&world, driver);
        world.settle(3);
        assert_eq!(world.seen(|seen| seen.drained.len()), 3, "all are read");
    });
}

#[test]
fn the_first_abort_wins_and_a_later_one_changes_nothing() {
    many_orders(|| {
        let world = World::new(QueueMode::All, false, 2);
        assert!(world.send("a"));
        let driver = driver(&world);
        world.inbox.abort("one");
        world.inbox.abort("two");
        end(&world, driver);
        world.settle(1);
        let causes = world.seen(|seen| seen.causes.clone());
        let legal = [None, Some(Cause::Aborted("one".into())), Some(Cause::Aborted("two".into()))];
        assert!(causes.len() == 1 && legal.contains(&causes[0]), "{causes:?}");
    });
}

#[test]
fn a_dispose_replaces_an_abort_and_all_who_wait_return() {
    many_orders(|| {
        let world = World::new(QueueMode::All, false, 1);
        assert!(world.send("a"));
        let driver = driver(&world);
        let aborting = task(&world, |world| world.inbox.abort("stop"));
        assert!(world.inbox.dispose("bye"));
        done(aborting);
        done(driver);
        block_on(world.inbox.quiet());
        for cause in world.seen(|seen| seen.causes.clone()) {
            assert!(
                cause.is_none()
                    || matches!(cause, Some(Cause::Disposed(_)))
                    || cause == Some(Cause::Aborted("stop".into()))
            );
        }
        world.settle(1);
        assert_eq!(world.inbox.status(), Status::Disposed);
    });
}

#[test]
fn one_of_two_disposes_is_the_first_and_nothing_is_taken_in_after_it() {
    all_orders(|| {
        let world = World::new(QueueMode::All, false, 2);
        let driver = driver(&world);
        let other = task(&world, |world| world.inbox.dispose("one"));
        let first = world.inbox.dispose("two");
        assert!(!world.send("late"), "taken in after a dispose had returned");
        assert_ne!(first, done(other), "exactly one is the first");
        done(driver);
        world.settle(0);
    });
}

#[test]
fn a_send_that_races_a_dispose_is_refused_read_or_counted() {
    all_orders(|| {
        let world = World::new(QueueMode::All, false, 2);
        let driver = driver(&world);
        let sender = task(&world, |world| world.send("a"));
        world.inbox.dispose("bye");
        let accepted = usize::from(done(sender));
        done(driver);
        world.settle(accepted);
    });
}

#[test]
fn a_cancel_counts_what_it_clears_and_nothing_else() {
    many_orders(|| {
        let world = World::new(QueueMode::All, false, 2);
        assert!(world.send("a"));
        let driver = driver(&world);
        let tasks = [
            task(&world, |world| world.steer("b")),
            task(&world, |world| {
                world.inbox.cancel(false);
                world.inbox.nudge();
                true
            }),
            task(&world, |world| world.send("c")),
        ];
        tasks.into_iter().for_each(|task| assert!(done(task)));
        end(&world, driver);
        world.settle(3);
    });
}

#[test]
fn a_held_driver_takes_nothing_before_its_release() {
    many_orders(|| {
        let world = World::new(QueueMode::All, true, 0);
        let driver = driver(&world);
        assert!(world.send("a"));
        assert!(world.seen(|seen| seen.drained.is_empty()), "held");
        world.inbox.release();
        end(&world, driver);
        world.settle(1);
        assert_eq!(world.seen(|seen| seen.turns), 1);
    });
}

#[test]
fn any_calls_at_any_time_keep_every_promise() {
    many_orders(|| {
        let mode = if chance(2) { QueueMode::All } else { QueueMode::One };
        let world = World::new(mode, chance(4), 2);
        let driver = driver(&world);
        let actors: Vec<_> = (0..3).map(|actor| task(&world, move |world| act(world, actor))).collect();
        let waiting = {
            let world = world.clone();
            spawn(async move { world.inbox.quiet().await })
        };
        let accepted = actors.into_iter().map(done).sum();
        world.inbox.release();
        done(waiting);
        end(&world, driver);
        world.settle(accepted);
    });
}

/// One in `n`.
fn chance(n: u32) -> bool {
    use shuttle::rand::Rng;
    shuttle::rand::thread_rng().gen_range(0..n) == 0
}

/// Three calls of any kind; returns how many messages were taken in.
fn act(world: &World, actor: usize) -> usize {
    let mut accepted = 0;
    for call in 0..3 {
        let text = format!("{actor}.{call}");
        let kind = (0..7).find(|_| chance(4)).unwrap_or(0);
        match kind {
            0 | 1 => accepted += usize::from(world.send(&text)),
            2 | 3 => accepted += usize::from(world.steer(&text)),
            4 => world.inbox.abort(&text),
            5 => {
                world.inbox.cancel(chance(2));
                world.inbox.nudge();
            }
            _ => drop(world.inbox.dispose(&text)),
        }
    }
    accepted
}
