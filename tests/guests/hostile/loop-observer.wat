;; It loops for ever when it is told of entries.
;; world: export dsh:session/observer@0.1.0;
;; limit: cpu-ms 5
;; fails: session/observer limit: it computed for longer than the limit `cpu-ms` of 5 ms
;; always: an observer is not told the turn
(func (export "dsh:session/observer@0.1.0#on-entries") (param $entries i32) (param $count i32)
  (loop (br 0)))
