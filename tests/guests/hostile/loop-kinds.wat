;; It loops for ever when it is asked what it observes.
;; world: export dsh:session/observer@0.1.0;
;; limit: cpu-ms 5
;; load: plugin `loop-kinds` failed in `session/observer`: it computed for longer than the limit `cpu-ms` of 5 ms
(func (export "dsh:session/observer@0.1.0#on-entries") (param $entries i32) (param $count i32)
  )
(func (export "dsh:session/observer@0.1.0#kinds") (result i32) (loop (br 0)) unreachable)
