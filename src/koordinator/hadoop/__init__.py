"""Hadoop YARN as seen from outside: ResourceManagers and NodeManagers behind one port.

``port``           what components see: nodes and containers
``configuration``  yarn-site.xml and its kin
``rest``           the web services, from Hadoop 3.3 on
``rpc``            Hadoop IPC, for 3.2
``connection``     of several ResourceManagers the one that is active
"""
