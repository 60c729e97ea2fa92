;; It appends two entries for each that it is told of, its own ones not among them.
;; world: import dsh:session/log@0.1.0;
;; world: export dsh:session/observer@0.1.0;
;; grant: session
(data (i32.const 0) "note") (data (i32.const 8) "1")
(func (export "dsh:session/observer@0.1.0#on-entries") (param $entries i32) (param $count i32)
  (call $log.append (i32.const 0) (i32.const 4) (i32.const 8) (i32.const 1) (i32.const 2048)) (call $log.append (i32.const 0) (i32.const 4) (i32.const 8) (i32.const 1) (i32.const 2048)))
