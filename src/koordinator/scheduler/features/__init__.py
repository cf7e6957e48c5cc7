"""What the scheduler does besides finding nodes: one room per feature, blind to the others.

``gangs``         pods that start together, near to each other
``quotas``        elastic quotas, and the queues of their jobs
``reservations``  room held for pods to come
``topology``      the cluster network as it is reported
``explanation``   why a pod waits
``audit``         what was decided, and why
``metrics``       what is measured
``nodes``         pages about nodes

``scheduler.assembly`` puts them together; ``scheduler.loop.feature`` says what each may do.
"""
