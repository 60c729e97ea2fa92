;; It traps when it is told of entries, each time.
;; world: export dsh:session/observer@0.1.0;
;; fails: session/observer trap: it panicked or aborted
;; always: an observer is not told the turn
(func (export "dsh:session/observer@0.1.0#on-entries") (param $entries i32) (param $count i32)
  unreachable)
