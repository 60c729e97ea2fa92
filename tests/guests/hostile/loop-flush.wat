;; It loops for ever in its flush.
;; world: export dsh:session/flush@0.1.0;
;; limit: cpu-ms 5
;; fails: session/flush limit: it computed for longer than the limit `cpu-ms` of 5 ms
;; always: a flush is not told the turn
(func (export "dsh:session/flush@0.1.0#flush") (result i32)
  (loop (br 0))
  (call $ok))
