"""The log on Apache Kafka, the scale-out engine.

Concepts: the transactional producer that fences (`transactional_producer`, `writer`), the tenure of an
assigned partition (`tenure`), bounded reads to a high watermark (`bounded_reader`), live tails (`tail`) and
consumer groups (`group`). Topics and their settings: `admin` (over `admin_connection`), `topic_settings`.
Commits of unknown outcome: `coordinator`. Clients that no longer find their cluster: `lost_client`.

Open `log.py` first; a writer is fenced in `writer.py`.
"""
